"""A claim: one rule on one subject, as `check` takes it, with the script's arguments prepared.

Claims are cached by their rule, so a subject that returns costs a dict lookup. Several claims that are
checked together are cached as one `JointClaim`. The key of a fixed window changes with the window:
`roll_window` makes the next one when the server's time, as estimated, has left the current one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import RLock
from time import monotonic, time
from typing import TYPE_CHECKING, Literal, TypeAlias

from ephemera.errors import InvalidClaim, WrongFields
from ephemera.keyspace import FieldValue
from ephemera.patterns.rate_limits._algorithms import EMPTY_FIELD, FixedWindow, SlidingWindow, TokenBucket
from ephemera.wire import PreparedScript, Script

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits._rules import Rule

TAKE = Script.load("ephemera.patterns.rate_limits", "take")

MAX_UNITS = 10**12
"""Units that the script counts exactly, whatever else it must multiply them by."""

CurrentWindow: TypeAlias = tuple[float, float, tuple[str, ...], PreparedScript]
"""The bounds of a claim's window in ms since 1970, its keys, and the prepared check: replaced as a whole."""

WINDOWS = RLock()
"""Held while claims enter a window: rules are declared once, and claims are shared by all threads."""

_STRICT_ATTEMPTS = 2
"""Attempts that insist on the current window; after them, nodes of a cluster disagree on the time."""
_ALWAYS = float("inf")
_LETTERS = {"fixed": b"f", "sliding": b"s", "bucket": b"b"}


class Claim:
    """One rule on one subject; made by `rule.on(subject)`."""

    __slots__ = (
        "_current",
        "_header_memo",
        "_packed",
        "_settings",
        "cost",
        "ends",
        "id",
        "key",
        "limit",
        "limits",
        "rule",
        "starts",
        "subject",
        "tier",
        "window",
    )  # fmt: skip

    def __init__(
        self,
        rule: Rule,
        limit: int,
        tier: str | None,
        subject: tuple[FieldValue, ...],
        cost: int | None = None,
    ) -> None:
        self.rule = rule
        self.limits = rule.limits
        self.limit = limit
        self.tier = tier  # of the rule; None for a limit given by `rule.at`
        self.subject = subject
        self.cost = cost  # its own, regardless of the check's; None without
        self._settings = rule.algorithm.settings(limit)
        self._header_memo: tuple[bytes, tuple[bytes, bytes]] | None = None  # of `limit_headers`
        # The id of a subject's use between processes: its key without the window.
        self.id = rule.keyspace.template.render(_fields(rule, subject))
        if rule.window is None:
            self._enter_window(self.id, -_ALWAYS, _ALWAYS, ())
        else:
            self._enter_window(self.id, 0.0, 0.0, (0, 0, 0))  # in no window yet

    def __repr__(self) -> str:
        return f"<claim {self.rule.name!r} on {', '.join(map(str, self.subject)) or 'everyone'}>"

    def with_cost(self, cost: int) -> Claim:
        """The same claim with a cost of its own, regardless of the check's."""
        check_cost(cost, self.rule.name)
        return Claim(self.rule, self.limit, self.tier, self.subject, cost)

    def _enter_window(self, key: str, starts: float, ends: float, window: tuple[int, ...]) -> None:
        self.key, self.starts, self.ends = key, starts, ends
        self.window = window
        self._packed = _pack(self, self.cost or 1)
        prepared = PreparedScript(TAKE, (key,), (b"t" + self._packed,))
        self._current: CurrentWindow = (starts, ends, (key,), prepared)


class JointClaim:
    """Several claims at their usual cost, prepared together."""

    __slots__ = ("_current", "claims")

    def __init__(self, claims: tuple[Claim, ...]) -> None:
        self.claims = claims
        self._current: CurrentWindow = (0.0, 0.0, (), claims[0]._current[3])


class WindowClock:
    """Estimates the server's time, in milliseconds since 1970, and learns from its replies."""

    def __init__(self) -> None:
        self.offset = (time() - monotonic()) * 1000  # ms from our monotonic clock to the server's

    def synchronize(self, now: int) -> None:
        """Adopt the server's time."""
        self.offset = now - monotonic() * 1000

    def roll_windows(self, claims: Sequence[Claim]) -> None:
        """Move claims on fixed windows to the current window of the server, as estimated."""
        roll_windows(claims, monotonic() * 1000 + self.offset)


def roll_windows(claims: Sequence[Claim], now: float) -> None:
    """Move claims to the windows of a moment, where they are in another."""
    for claim in claims:
        if not claim.starts <= now < claim.ends:
            roll_window(claim, now)


def roll_window(claim: Claim | JointClaim, now: float) -> None:
    """Move a claim to the fixed window of a moment, in milliseconds since 1970."""
    with WINDOWS:
        if isinstance(claim, Claim):
            if claim.rule.window is not None:
                window = claim.rule.window.at(now)
                key = claim.id.removesuffix(EMPTY_FIELD) + window.text
                claim._enter_window(key, window.starts, window.ends, window.arguments)
            return
        claims = claim.claims
        roll_windows(claims, now)
        keys = tuple(each.key for each in claims)
        claim._current = (
            max(each.starts for each in claims),
            min(each.ends for each in claims),
            keys,
            PreparedScript(TAKE, keys, take_arguments(claims, 1, "t", 0)),
        )


def keys_and_arguments(
    claims: Sequence[Claim], cost: int, mode: Literal["t", "p"], attempt: int
) -> tuple[tuple[str, ...], tuple[bytes]]:
    """The keys and the arguments of `take.lua`, of the same windows."""
    with WINDOWS:
        return tuple([claim.key for claim in claims]), take_arguments(claims, cost, mode, attempt)


def take_arguments(claims: Iterable[Claim], cost: int, mode: Literal["t", "p"], attempt: int) -> tuple[bytes]:
    """The arguments of `take.lua` to take or to peek, at a cost for claims without their own."""
    letter = mode if attempt < _STRICT_ATTEMPTS else mode.upper()
    packed = [
        claim._packed if cost == 1 or claim.cost is not None else _pack(claim, cost) for claim in claims
    ]
    return (letter.encode() + b"".join(packed),)


def correction_arguments(claim: Claim, units: int, taken: int, taken_at: int, used: int) -> tuple[str, ...]:
    """The arguments of `correct.lua` to add units to those taken at a moment, in ms since 1970.

    `used` is what the claim had used before it took them.
    """
    algorithm = claim.rule.algorithm
    match algorithm:
        case FixedWindow():
            end = taken_at // algorithm.per * algorithm.per + algorithm.keep
            return claim.id, "fixed", str(units), str(end)
        case SlidingWindow():
            stamp = algorithm.stamp(claim._settings, taken_at)
            return claim.id, "sliding", str(units), str(algorithm.per), str(stamp)
        case TokenBucket():
            interval, parts = claim._settings[1:3]
            # Units come back in the order in which they were taken; the moment is rounded up to its ms.
            ends = (taken_at + 1) * 1000 + used - -taken * interval // parts
            return claim.id, "bucket", str(units), str(interval), str(parts), str(ends)


def check_cost(cost: int, rule: str = "check") -> int:
    """Return a valid cost, or raise."""
    if type(cost) is not int or not 1 <= cost <= MAX_UNITS:
        raise InvalidClaim(rule, f"it cannot cost {cost!r}", f"use an integer from 1 to {MAX_UNITS}")
    return cost


def check_claims(claims: Iterable[object]) -> None:
    """Raise when one of these is not a claim: a rule, or a tier of it, without a subject."""
    for claim in claims:
        if not isinstance(claim, Claim):
            rule = getattr(claim, "rule", claim)
            raise InvalidClaim(
                getattr(rule, "name", "check"),
                f"{claim!r} is not a claim, as it names no subject",
                "use rule.on(subject), or rule[tier].on(subject)",
            )


def _pack(claim: Claim, cost: int) -> bytes:
    numbers = (cost, *claim._settings, *claim.window)
    return _LETTERS[claim.rule.algorithm.kind] + b"".join([each.to_bytes(6, "big") for each in numbers])


def _fields(rule: Rule, subject: tuple[FieldValue, ...]) -> dict[str, FieldValue]:
    if len(subject) != len(rule.subject_fields):
        raise WrongFields(rule.keyspace.pattern, rule.subject_fields, tuple(map(str, subject)))
    fields = {**rule.where, **dict(zip(rule.subject_fields, subject, strict=True))}
    if rule.window is not None:
        fields[rule.window.name] = ""
    return fields
