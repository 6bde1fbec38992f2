"""The errors to catch. Each message says what to do next, and carries its facts as attributes.

All derive from `EphemeraError`; those that mean what a built-in exception means derive from it too, such as
`LockTimeout` from `TimeoutError`. The file has a section for the server, for declarations and values, and one
for each group of patterns. A `Problem` of `ephemera.web` is none of them: it is a response that is raised.

When the server cannot be reached, two errors distinguish what a caller may do next. `Unavailable`: the
command was not executed. `OutcomeUnknown`: it was sent, and may or may not have been executed. Both are
`ConnectionFailed`, which is what code catches to fall back.
"""

from __future__ import annotations

from asyncio import InvalidStateError
from datetime import timedelta

__all__ = [
    "BacklogFull",
    "CannotConnect",
    "CheckpointLost",
    "ConnectionFailed",
    "CrossSlot",
    "DatabaseUnavailable",
    "DeadlineExceeded",
    "DuplicateStep",
    "EmbeddedError",
    "EmbeddingFailed",
    "EphemeraError",
    "InvalidClaim",
    "InvalidCookie",
    "InvalidCursor",
    "InvalidDeclaration",
    "InvalidField",
    "InvalidLifetime",
    "InvalidToken",
    "InvalidUrl",
    "InvalidValue",
    "JobFailed",
    "JobLost",
    "JobNotFinished",
    "JobSnoozed",
    "JobTimedOut",
    "JobUnsuccessful",
    "KeyNotChanged",
    "KeyTooLong",
    "LoadFailed",
    "LoadTimeout",
    "LockAlreadyHeld",
    "LockLost",
    "LockTimeout",
    "LoopMisuse",
    "MissingExtra",
    "MissingResource",
    "OutcomeUnknown",
    "OverlappingPatterns",
    "PortInUse",
    "QuotaExceeded",
    "SchemaMismatch",
    "ServerError",
    "SessionsRevoked",
    "SlowConsumer",
    "StaleFencingToken",
    "StillLoading",
    "StoreClosed",
    "SyncCallInEventLoop",
    "Unavailable",
    "UndeclaredKeyspace",
    "UndecodableItems",
    "UnknownJob",
    "UnsupportedCommand",
    "VectorStoreUnavailable",
    "WrongFields",
    "WrongServer",
]


class EphemeraError(Exception):
    """The base class of every error that Ephemera raises."""


class MissingExtra(EphemeraError, ModuleNotFoundError):
    """An optional package that is not installed: its `name`, and the `extra` that installs it."""

    def __init__(self, problem: str, extra: str, package: str | None) -> None:
        super().__init__(f"{problem}: pip install 'ephemera-data[{extra}]'")
        self.name = package
        self.extra = extra


# The server and the connection to it


class InvalidUrl(EphemeraError, ValueError):
    """A server URL that cannot be parsed; the message never repeats its password."""


class UnsupportedCommand(EphemeraError, ValueError):
    """A command that cannot be sent on a shared connection; `reason` names the alternative."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"{command} is not supported here: {reason}")
        self.command = command
        self.reason = reason


class StoreClosed(EphemeraError):
    """The store was closed before this call."""


class SyncCallInEventLoop(EphemeraError, InvalidStateError, RuntimeError):
    """A synchronous call made on the thread of a running event loop, which it would block."""


class LoopMisuse(EphemeraError, RuntimeError):
    """A store used from another event loop, thread or process than its own; nothing was sent."""


class EmbeddedError(EphemeraError, RuntimeError):
    """An embedded server that did not start; the message ends with the last lines of its log."""


class PortInUse(EmbeddedError):
    """Another process listens on the port that an embedded server was to use."""


class ConnectionFailed(EphemeraError):
    """The server could not be reached, or did not reply; see `Unavailable` and `OutcomeUnknown`."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"{address}: {problem}")
        self.address = address
        self.problem = problem


class Unavailable(ConnectionFailed):
    """The server is not connected: the command was not executed."""


class OutcomeUnknown(ConnectionFailed):
    """The connection was lost before the reply: the command may or may not have been executed."""


class DeadlineExceeded(OutcomeUnknown, TimeoutError):
    """A deadline (`timeout=`, `ephemera.deadline`) passed first: what was sent may have been executed."""


class CannotConnect(Unavailable):
    """A connection that could not be opened; `advice` says what to check."""

    def __init__(self, address: str, problem: str, advice: str) -> None:
        super().__init__(address, f"cannot connect: {problem}. {advice}")
        self.problem = problem
        self.advice = advice


class WrongServer(CannotConnect):
    """A server that is not the expected one: it has the identity `found`, or unexpected `modules`."""

    def __init__(
        self, address: str, expected: str | None, *, found: str | None = None, modules: tuple[str, ...] = ()
    ) -> None:
        if modules:
            problem = f"has unexpected modules: {', '.join(modules)}"
            advice = f"correct the URL, or allow them with modules={modules!r}"
        elif expected is None:
            problem = f"is marked as {found!r}, and the store was opened without an identity"
            advice = f"correct the URL, or open the store with identity={found!r}"
        elif found is not None:
            problem = f"is marked as {found!r}, not as {expected!r}"
            advice = (
                "correct the URL, or if the server now belongs to this service: "
                f"ephemera mark --url URL --name {expected} --force"
            )
        else:
            problem = f"has no mark, and {expected!r} was expected"
            advice = (
                f"correct the URL, or if it is the right server: ephemera mark --url URL --name {expected}"
            )
        super().__init__(address, problem, advice)
        self.expected = expected
        self.found = found
        self.modules = modules

    def __str__(self) -> str:
        return f"{self.address} {self.problem}; {self.advice}"


class ServerError(EphemeraError):
    """An error reply of the server. `code` is its first word; `command` and `key` are what it replied to."""

    def __init__(self, message: str, command: str | None = None, key: str | None = None) -> None:
        self.message = message
        self.code = message.partition(" ")[0]
        self.command = command
        self.key = key
        super().__init__(message)

    def __str__(self) -> str:
        request = " ".join(part for part in (self.command, self.key and repr(self.key)) if part)
        return f"{request}: {self.message}" if request else self.message


class CrossSlot(ServerError):
    """One command with keys in different cluster slots."""


# Declarations, keys and values


class InvalidDeclaration(EphemeraError, ValueError):
    """A declaration that cannot work: which pattern, what is wrong, what to do."""

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
            "start one of them with another literal, or give it another number of ':' segments",
        )
        self.other = other
        self.example = example


class InvalidLifetime(EphemeraError, ValueError):
    """A duration or an instant that cannot be the lifetime of a key."""


class UndeclaredKeyspace(EphemeraError, LookupError):
    """A keyspace used on a store that was opened without its catalogue."""

    def __init__(self, pattern: str, catalogue: str, known: tuple[str, ...]) -> None:
        have = ", ".join(map(repr, known)) or "none"
        super().__init__(
            f"{pattern!r} belongs to the catalogue {catalogue!r}, and this store was opened with "
            f"{have}; pass that catalogue to connect()"
        )
        self.pattern = pattern
        self.catalogue = catalogue
        self.known = known


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


class WrongFields(EphemeraError, TypeError):
    """Field arguments that are not those of the pattern."""

    def __init__(self, pattern: str, expected: tuple[str, ...], given: tuple[str, ...]) -> None:
        takes = ", ".join(expected) or "no fields"
        super().__init__(f"{pattern!r} takes {takes}; given {', '.join(given) or 'none'}")
        self.pattern = pattern
        self.expected = expected
        self.given = given


class InvalidField(EphemeraError, ValueError):
    """A field value that cannot be part of a key."""

    def __init__(self, pattern: str, field: str, problem: str) -> None:
        super().__init__(f"{pattern!r}, field {field!r}: {problem}")
        self.pattern = pattern
        self.field = field
        self.problem = problem


class KeyTooLong(InvalidField):
    """A key above its length limit, in bytes; `field` is the longest of its fields."""

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
    """A value of another type than its keyspace was declared with."""

    def __init__(self, pattern: str, expected: str, given: str) -> None:
        super().__init__(f"{pattern!r} holds {expected}; given {given}")
        self.pattern = pattern
        self.expected = expected
        self.given = given


class UndecodableItems(EphemeraError):
    """A queue whose next items are not of its declared type; they stay in the queue."""

    def __init__(self, pattern: str, key: str) -> None:
        super().__init__(
            f"{pattern!r}: {key!r} holds items of another type, which stay there; consume them with the "
            "version of the program that wrote them, or move them to another key"
        )
        self.pattern = pattern
        self.key = key


class InvalidCursor(EphemeraError, ValueError):
    """A scan cursor that cannot be continued."""

    def __init__(self, cursor: str, problem: str) -> None:
        super().__init__(f"the cursor {cursor!r} cannot be continued: {problem}; start again without it")
        self.cursor = cursor
        self.problem = problem


class SchemaMismatch(EphemeraError):
    """SQL tables that this code cannot use: their version is `found`, 0 if there are none, not `needed`."""

    def __init__(self, component: str, name: str, *, found: int, needed: int) -> None:
        if found > needed:
            problem = f"have version {found}, and this code, of version {needed}, cannot use them"
            advice = "deploy the release that migrated them: pip install --upgrade ephemera-data"
        else:
            have = f"have version {found}" if found else "are missing, or have no recorded version"
            problem = f"{have}, and this code needs version {needed}"
            advice = "run: ephemera migrate up --catalogue NAME --database-url URL"
        super().__init__(f"the SQL tables of {component} {name!r} {problem}; {advice}")
        self.component = component
        self.name = name
        self.found = found
        self.needed = needed


# Sessions, tokens and cookies


class SessionsRevoked(EphemeraError):
    """All sessions of a user were revoked while a new one was being created from older facts."""

    def __init__(self, pattern: str, user: str) -> None:
        super().__init__(
            f"{pattern!r}: the sessions of {user!r} were revoked after this sign-in began; "
            "read the account again, and start over if it may still sign in"
        )
        self.pattern = pattern
        self.user = user


class InvalidToken(EphemeraError, ValueError):
    """A token that does not verify; `reason` is for the log and holds no secret."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the token is not valid: {reason}")
        self.reason = reason


class InvalidCookie(EphemeraError, ValueError):
    """A combination of cookie attributes that browsers refuse, or that would not protect the session."""


# Caches


class LoadTimeout(EphemeraError, TimeoutError):
    """A load that took longer than its cache allows, in seconds, with no stale entry to serve instead."""

    def __init__(self, key: str, seconds: float) -> None:
        super().__init__(
            f"{key!r}: not loaded within {seconds:g} s; make the loader faster, or give the cache a longer "
            "hard_timeout, or a `stale` time so that it can serve its last value"
        )
        self.key = key
        self.seconds = seconds


class LoadFailed(EphemeraError):
    """A load that failed, with nothing stale to serve; the next one is tried after `retry_after` seconds."""

    def __init__(self, key: str, retry_after: float) -> None:
        super().__init__(f"{key!r}: its load failed, and is not retried for {retry_after:.3g} s; see the log")
        self.key = key
        self.retry_after = retry_after


class StillLoading(EphemeraError, TimeoutError):
    """A load that takes longer than this caller waits, in seconds; ask again later."""

    def __init__(self, key: str, waited: float) -> None:
        super().__init__(f"{key!r}: still loading after {waited:g} s; ask again in a moment")
        self.key = key
        self.waited = waited


class EmbeddingFailed(EphemeraError):
    """An embedding model that could not compute vectors; the message holds no secret."""

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(f"embeddings by {model!r}: {problem}")
        self.model = model
        self.problem = problem


class VectorStoreUnavailable(EphemeraError):
    """A vector database that could not be reached, or refused a request."""

    def __init__(self, location: str, problem: str) -> None:
        super().__init__(f"the vectors at {location}: {problem}")
        self.location = location
        self.problem = problem


# Locks


class LockLost(EphemeraError):
    """A lock that its holder no longer has; its last writes may have met another holder's."""

    def __init__(self, key: str, fence: int, reason: str) -> None:
        super().__init__(
            f"{key!r}: the lock (fence {fence}) was lost: {reason}; "
            "another holder may have it by now, so start over"
        )
        self.key = key
        self.fence = fence
        self.reason = reason


class LockTimeout(EphemeraError, TimeoutError):
    """A lock that `holder` kept for longer than this caller waited, in seconds."""

    def __init__(self, key: str, waited: float, holder: str, fence: int) -> None:
        by = f"{holder} (fence {fence}) holds it" if holder else "it is being handed over"
        super().__init__(f"{key!r}: not free within {waited:.3g} s, {by}; wait longer, or try again later")
        self.key = key
        self.waited = waited
        self.holder = holder
        self.fence = fence


class LockAlreadyHeld(EphemeraError, RuntimeError):
    """A task that acquires a lock it already holds: it would wait for itself."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(
            f"{key!r}: this task holds the lock already (fence {fence}) and would wait for itself; "
            "pass the held lock down to where it is needed"
        )
        self.key = key
        self.fence = fence


class StaleFencingToken(EphemeraError):
    """A write that SQL refused: a later holder of the lock has already written."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(
            f"{key!r}: the fence {fence} is older than one that SQL has seen; the lock has been lost since, "
            "so roll back and start over"
        )
        self.key = key
        self.fence = fence


# Rate limits, usage and write-behind


class InvalidClaim(EphemeraError, ValueError):
    """A claim that does not fit its rate-limit rule: which rule, what is wrong, what to do."""

    def __init__(self, rule: str, problem: str, advice: str) -> None:
        super().__init__(f"{rule}: {problem}; {advice}")
        self.rule = rule
        self.problem = problem
        self.advice = advice


class QuotaExceeded(EphemeraError):
    """A reservation that exceeds the quota of an organization; nothing was reserved."""

    def __init__(
        self,
        organization_id: str,
        period: str,
        measure: str,
        requested: int,
        limit: int,
        used: int,
        reserved: int,
    ) -> None:
        super().__init__(
            f"{organization_id!r} has used {used} {measure} in {period}, and {reserved} are reserved: "
            f"{requested} more would exceed the limit of {limit}; request less, or wait for the next period"
        )
        self.organization_id = organization_id
        self.period = period
        self.measure = measure
        self.requested = requested
        self.limit = limit
        self.used = used
        self.reserved = reserved


class BacklogFull(EphemeraError):
    """A write-behind buffer that has reached its limit: nothing was added. SQL is down, or too slow."""

    def __init__(self, name: str, shard: int, limit: int) -> None:
        super().__init__(
            f"{name!r}: the backlog of shard {shard} has reached its limit of {limit}; nothing was added: "
            "check that its Flusher runs and SQL accepts its batches, or raise `backlog`"
        )
        self.name = name
        self.shard = shard
        self.limit = limit


# Jobs, graphs and fan-out


class JobLost(EphemeraError):
    """A job that no longer belongs to this worker: taken over, cancelled, or its lease expired."""

    def __init__(self, job_id: str, fence: int, reason: str) -> None:
        super().__init__(
            f"the job {job_id} (fence {fence}) is no longer this worker's: {reason}; "
            "its further writes are refused"
        )
        self.job_id = job_id
        self.fence = fence
        self.reason = reason


class JobFailed(EphemeraError):
    """Raise it in a job that no retry can help: its state becomes `failed`, with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class JobSnoozed(EphemeraError):
    """Raise it in a job that cannot run yet: it waits for `delay`, and this attempt does not count."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"the job waits for {delay.total_seconds():g} s")
        self.delay = delay


class JobTimedOut(EphemeraError, TimeoutError):
    """An attempt that took longer than its job's time limit, in seconds."""

    def __init__(self, job_id: str, seconds: float, step: str) -> None:
        super().__init__(
            f"the job {job_id} did not end within {seconds:g} s, and was in the step {step!r}; "
            "the next attempt resumes there; make the step shorter, or give the job a longer time_limit"
        )
        self.job_id = job_id
        self.seconds = seconds
        self.step = step


class JobUnsuccessful(EphemeraError):
    """A job whose result was awaited, and that failed, died or was cancelled; `error` is its last one."""

    def __init__(self, job_id: str, kind: str, state: str, error: str | None) -> None:
        super().__init__(f"the job {job_id} ({kind}) is {state}" + (f": {error}" if error else ""))
        self.job_id = job_id
        self.kind = kind
        self.state = state
        self.error = error


class JobNotFinished(EphemeraError, TimeoutError):
    """A job that did not end while its result was awaited; it is still running."""

    def __init__(self, job_id: str, state: str, seconds: float) -> None:
        super().__init__(
            f"the job {job_id} did not end within {seconds:g} s: it is {state}; "
            "it is still running, so await its result again, or cancel it"
        )
        self.job_id = job_id
        self.state = state
        self.seconds = seconds


class UnknownJob(EphemeraError, LookupError):
    """A job that is not in the table, or not in a state that allows the operation."""

    def __init__(self, job_id: str, problem: str) -> None:
        super().__init__(f"the job {job_id!r} {problem}")
        self.job_id = job_id
        self.problem = problem


class DuplicateStep(EphemeraError, ValueError):
    """Two steps of one job with the same name: a resumed job could not know which was done."""

    def __init__(self, kind: str, step: str) -> None:
        super().__init__(
            f"the job {kind!r} has two steps {step!r}; give each a name of its own, as in f'slide:{{number}}'"
        )
        self.kind = kind
        self.step = step


class CheckpointLost(EphemeraError):
    """A graph's checkpoint whose parent is gone, and which cannot be stored without it."""

    def __init__(self, thread_id: str, parent: str) -> None:
        super().__init__(
            f"the thread {thread_id!r} was deleted while its graph ran, or Redis lost what its channels "
            f"build on (checkpoint {parent}), so nothing is added; invoke the graph again, with its input"
        )
        self.thread_id = thread_id
        self.parent = parent


class SlowConsumer(EphemeraError):
    """A fan-out connection that was dropped because too many messages waited for it."""

    def __init__(self, key: str, backlog: int) -> None:
        super().__init__(
            f"{key!r}: a connection was dropped with {backlog} messages waiting; let its client reconnect "
            "and fetch what it missed"
        )
        self.key = key
        self.backlog = backlog


# The console


class KeyNotChanged(EphemeraError):
    """A change of a key in the console that was refused: the message says why."""


class DatabaseUnavailable(EphemeraError):
    """A service's database that cannot be used; the message repeats nothing that was sent to it."""

    def __init__(self, service: str, problem: str) -> None:
        super().__init__(f"the database of {service} cannot be used: {problem}. Is --database-url right?")
        self.service = service
        self.problem = problem
