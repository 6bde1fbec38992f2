"""Every error Ephemera raises; each carries its facts as fields and says what to do next.

Two of them decide how a caller may react when the server is away, so they are kept apart:
`Unavailable` means the command was certainly not executed, `OutcomeUnknown` means it was sent and nobody
can tell. Both are `ConnectionFailed`, which is what a pattern catches to fall back.
"""

from __future__ import annotations

__all__ = [
    "AlreadyHeld",
    "CannotConnect",
    "CommandRefused",
    "ConnectionFailed",
    "CrossSlot",
    "EmbeddedError",
    "EphemeraError",
    "InvalidClaim",
    "InvalidCursor",
    "InvalidDeclaration",
    "InvalidField",
    "InvalidLifetime",
    "InvalidUrl",
    "InvalidValue",
    "JobFailed",
    "JobLost",
    "JobTimedOut",
    "KeyTooLong",
    "LoadFailed",
    "LoadTimeout",
    "LockLost",
    "LockTimeout",
    "LoopMisuse",
    "OutcomeUnknown",
    "OverlappingPatterns",
    "RepeatedStep",
    "RevokedMeanwhile",
    "ServerError",
    "StaleFence",
    "StillLoading",
    "StoreClosed",
    "ThreadGone",
    "Unavailable",
    "UndeclaredKeyspace",
    "UnknownJob",
    "Unreadable",
    "WrongFields",
    "WrongServer",
]


class EphemeraError(Exception):
    """The base of every error that Ephemera raises."""


class InvalidUrl(EphemeraError, ValueError):
    """A server URL that cannot be understood; the message never repeats its password."""


class CommandRefused(EphemeraError, ValueError):
    """A command that cannot share a connection with others, and what to use instead."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"{command} is refused: {reason}")
        self.command = command
        self.reason = reason


class StoreClosed(EphemeraError):
    """The store was closed before this call."""


class LoopMisuse(EphemeraError, RuntimeError):
    """A blocking call made on an event loop's own thread, which would stop that loop."""


class EmbeddedError(EphemeraError, RuntimeError):
    """An embedded server that did not start, with the end of its own log."""


class ConnectionFailed(EphemeraError):
    """The server could not be asked, or did not answer; see `Unavailable` and `OutcomeUnknown`."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"{address}: {problem}")
        self.address = address
        self.problem = problem


class Unavailable(ConnectionFailed):
    """The server is not connected: the command was not executed."""


class OutcomeUnknown(ConnectionFailed):
    """The connection was lost before the reply: the command may or may not have been executed."""


class CannotConnect(Unavailable):
    """A connection that could not be opened, and what to do about it."""

    def __init__(self, address: str, problem: str, advice: str) -> None:
        super().__init__(address, f"cannot connect: {problem}. {advice}")
        self.problem = problem
        self.advice = advice


class ServerError(EphemeraError):
    """An error reply of the server: `code` is its first word, `command` and `key` what it answered."""

    def __init__(self, message: str, command: str | None = None, key: str | None = None) -> None:
        self.message = message
        self.code = message.partition(" ")[0]
        self.command = command
        self.key = key
        super().__init__(message)

    def __str__(self) -> str:
        asked = " ".join(part for part in (self.command, self.key and repr(self.key)) if part)
        return f"{asked}: {self.message}" if asked else self.message


class CrossSlot(ServerError):
    """Keys of one command that live in different cluster slots."""


class InvalidDeclaration(EphemeraError, ValueError):
    """A keyspace that cannot be declared as written: which pattern, what is wrong, what to do."""

    def __init__(self, pattern: str, problem: str, advice: str) -> None:
        super().__init__(f"{pattern!r}: {problem}; {advice}")
        self.pattern = pattern
        self.problem = problem
        self.advice = advice


class OverlappingPatterns(InvalidDeclaration):
    """Two patterns that could render the same key; `example` is one such key."""

    def __init__(self, pattern: str, other: str, example: str) -> None:
        super().__init__(
            pattern,
            f"overlaps {other!r}: the key {example!r} could belong to both",
            "give one of them another literal start or another number of ':' segments",
        )
        self.other = other
        self.example = example


class InvalidLifetime(EphemeraError, ValueError):
    """A duration or an instant that cannot end a key's life, and what to give instead."""


class MissingResource(EphemeraError, LookupError):
    """A declaration that needs more than Redis, such as a SQL engine, on a store opened without it."""

    def __init__(self, declaration: str, needed: str, given: str | None = None) -> None:
        self.declaration = declaration
        self.needed = needed
        self.given = given
        problem = "was given none" if given is None else f"was given {given}"
        super().__init__(
            f"{declaration} needs {needed} and {problem}; "
            f"open the store with connect(url, ..., resources={{DECLARATION: ...}})"
        )


class UndeclaredKeyspace(EphemeraError, LookupError):
    """A keyspace used on a store that was not opened with its catalogue."""

    def __init__(self, pattern: str, catalogue: str, known: tuple[str, ...]) -> None:
        have = ", ".join(map(repr, known)) or "none"
        super().__init__(
            f"{pattern!r} belongs to the catalogue {catalogue!r}, and this store was opened with "
            f"{have}; give that catalogue to connect()"
        )
        self.pattern = pattern
        self.catalogue = catalogue
        self.known = known


class WrongFields(EphemeraError, TypeError):
    """Field arguments that are not those of the pattern."""

    def __init__(self, pattern: str, expected: tuple[str, ...], given: tuple[str, ...]) -> None:
        takes = ", ".join(expected) or "no fields"
        super().__init__(f"{pattern!r} takes {takes}; given {', '.join(given) or 'none'}")
        self.pattern = pattern
        self.expected = expected
        self.given = given


class InvalidField(EphemeraError, ValueError):
    """A field value that no key can be made of."""

    def __init__(self, pattern: str, field: str, problem: str) -> None:
        super().__init__(f"{pattern!r}, field {field!r}: {problem}")
        self.pattern = pattern
        self.field = field
        self.problem = problem


class KeyTooLong(InvalidField):
    """A key above its length limit; `field` is the longest of its fields, lengths are in bytes."""

    def __init__(self, pattern: str, field: str, length: int, limit: int) -> None:
        super().__init__(
            pattern,
            field,
            f"the key would be {length} bytes long and the limit is {limit}; "
            "hash long values before they become part of a key",
        )
        self.length = length
        self.limit = limit


class InvalidValue(EphemeraError, TypeError):
    """A value of another type than its space was declared with."""

    def __init__(self, pattern: str, expected: str, given: str) -> None:
        super().__init__(f"{pattern!r} holds {expected}; given {given}")
        self.pattern = pattern
        self.expected = expected
        self.given = given


class Unreadable(EphemeraError):
    """Items of a queue that are not of its space's type; they stay in their place, nothing is lost."""

    def __init__(self, pattern: str, key: str) -> None:
        super().__init__(
            f"{pattern!r}: {key!r} holds items of another shape, which stay there; let the version of "
            "the program that wrote them take them out, or move them away"
        )
        self.pattern = pattern
        self.key = key


class WrongServer(CannotConnect):
    """A server that is not the one it was taken for: `found` is its mark, `modules` those nobody expected."""

    def __init__(
        self, address: str, expected: str | None, *, found: str | None = None, modules: tuple[str, ...] = ()
    ) -> None:
        if modules:
            problem = f"carries the modules {', '.join(modules)}, which nobody here expects"
            advice = f"correct the URL, or say that they belong there: modules={modules!r}"
        elif expected is None:
            problem = f"is marked as {found!r}, and the store was opened without a name"
            advice = f"correct the URL, or say that it is this one's: identity={found!r}"
        elif found is not None:
            problem = f"is marked as {found!r}, not as {expected!r}"
            advice = (
                "correct the URL, or if the server has changed hands: "
                f"ephemera mark --url URL --name {expected} --force"
            )
        else:
            problem = f"carries no mark, and {expected!r} was expected"
            advice = (
                f"correct the URL, or if it is the right server: ephemera mark --url URL --name {expected}"
            )
        super().__init__(address, problem, advice)
        self.expected = expected
        self.found = found
        self.modules = modules

    def __str__(self) -> str:
        return f"{self.address} {self.problem}; {self.advice}"


class InvalidCursor(EphemeraError, ValueError):
    """A place in a scan that cannot be continued from."""

    def __init__(self, cursor: str, problem: str) -> None:
        super().__init__(f"the cursor {cursor!r} cannot be continued: {problem}; start again without it")
        self.cursor = cursor
        self.problem = problem


class RevokedMeanwhile(EphemeraError):
    """All sessions of a user were ended while a new one was being prepared from what was true before."""

    def __init__(self, pattern: str, user: str) -> None:
        super().__init__(
            f"{pattern!r}: the sessions of {user!r} were ended after this sign-in had begun; "
            "read the account again, and begin again if it may still sign in"
        )
        self.pattern = pattern
        self.user = user


class InvalidClaim(EphemeraError, ValueError):
    """A limit asked for in a way that its rule does not know: which rule, what is wrong, what to do."""

    def __init__(self, rule: str, problem: str, advice: str) -> None:
        super().__init__(f"{rule}: {problem}; {advice}")
        self.rule = rule
        self.problem = problem
        self.advice = advice


class LoadTimeout(EphemeraError, TimeoutError):
    """A load that took longer than its cache allows, in seconds, with no stale entry to serve instead."""

    def __init__(self, key: str, seconds: float) -> None:
        super().__init__(
            f"{key!r}: not loaded within {seconds:g} s; make the loader faster, or give the cache a longer "
            "hard_timeout, or a `stale` time to serve what it had"
        )
        self.key = key
        self.seconds = seconds


class LoadFailed(EphemeraError):
    """A resource whose load has failed, with nothing stale to serve; no other is tried for some seconds."""

    def __init__(self, key: str, retry_after: float) -> None:
        super().__init__(
            f"{key!r}: its load has failed, and is not repeated for {retry_after:.3g} s; see the log"
        )
        self.key = key
        self.retry_after = retry_after


class StillLoading(EphemeraError, TimeoutError):
    """A resource that is being loaded for longer than its caller would wait, in seconds; ask again later."""

    def __init__(self, key: str, waited: float) -> None:
        super().__init__(f"{key!r}: still being loaded after {waited:g} s; ask again in a moment")
        self.key = key
        self.waited = waited


class LockLost(EphemeraError):
    """A lock that its holder no longer has; what was done last may have met another holder's work."""

    def __init__(self, key: str, fence: int, reason: str) -> None:
        super().__init__(
            f"{key!r}: the lock (fence {fence}) was lost: {reason}; another may hold it by now, so begin anew"
        )
        self.key = key
        self.fence = fence
        self.reason = reason


class LockTimeout(EphemeraError, TimeoutError):
    """A lock that stayed with others for as long as its caller would wait, in seconds; `holder` has it."""

    def __init__(self, key: str, waited: float, holder: str, fence: int) -> None:
        by = f"{holder} (fence {fence}) holds it" if holder else "it is being handed over"
        super().__init__(f"{key!r}: not free within {waited:.3g} s, {by}; wait longer, or try again later")
        self.key = key
        self.waited = waited
        self.holder = holder
        self.fence = fence


class AlreadyHeld(EphemeraError, RuntimeError):
    """A task that asks for a lock it has: it would wait for itself."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(
            f"{key!r}: this task holds the lock already (fence {fence}) and would wait for itself; "
            "pass what `hold` gave down to where it is needed"
        )
        self.key = key
        self.fence = fence


class StaleFence(EphemeraError):
    """A write refused by SQL: a later holder of the lock was there before it."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(
            f"{key!r}: the fence {fence} is older than one that SQL has seen; the lock was lost meanwhile, "
            "so roll back and begin anew"
        )
        self.key = key
        self.fence = fence


class ThreadGone(EphemeraError):
    """A graph's checkpoint that builds on one which is gone, and cannot do without it."""

    def __init__(self, thread_id: str, parent: str) -> None:
        super().__init__(
            f"the thread {thread_id!r} was deleted while its graph ran, or Redis lost what its channels "
            f"build on (checkpoint {parent}), so nothing is added; invoke the graph anew, with its input"
        )
        self.thread_id = thread_id
        self.parent = parent


class JobLost(EphemeraError):
    """A job that is no longer this worker's: taken over, cancelled, or its lease could not be kept."""

    def __init__(self, job_id: str, fence: int, reason: str) -> None:
        super().__init__(
            f"the job {job_id} (fence {fence}) is no longer this worker's: {reason}; "
            "what it does from here on is refused"
        )
        self.job_id = job_id
        self.fence = fence
        self.reason = reason


class JobFailed(EphemeraError):
    """Raise it in a job that no further attempt can help: its state becomes `failed`, with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class JobTimedOut(EphemeraError, TimeoutError):
    """An attempt that took longer than its job's time limit, in seconds."""

    def __init__(self, job_id: str, seconds: float, step: str) -> None:
        super().__init__(
            f"the job {job_id} did not end within {seconds:g} s, and was in the step {step!r}; "
            "the next attempt goes on from there; make the step shorter, or give the job a longer time_limit"
        )
        self.job_id = job_id
        self.seconds = seconds
        self.step = step


class UnknownJob(EphemeraError, LookupError):
    """A job that is not in the table, or in no state for what was asked."""

    def __init__(self, job_id: str, problem: str) -> None:
        super().__init__(f"the job {job_id!r} {problem}")
        self.job_id = job_id
        self.problem = problem


class RepeatedStep(EphemeraError, ValueError):
    """Two steps of one job with the same name: a resumed job could not tell which was done."""

    def __init__(self, kind: str, step: str) -> None:
        super().__init__(
            f"the job {kind!r} has two steps {step!r}; give each a name of its own, as in f'slide:{{number}}'"
        )
        self.kind = kind
        self.step = step
