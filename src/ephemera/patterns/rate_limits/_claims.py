"""A claim: one rule on one subject, as `check` takes it, with everything that the script needs made ready.

Claims are kept by their rule, so a subject that comes back costs a dict lookup, and several claims that are
checked together are kept by the limiter as one `JointClaim`. The key of a fixed window changes with the
window: `turn` makes the next one when the server's time, as estimated, has left the present one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ephemera.errors import InvalidClaim, WrongFields
from ephemera.keyspace import FieldValue
from ephemera.patterns.rate_limits._algorithms import FixedWindow, SlidingWindow, TokenBucket
from ephemera.patterns.rate_limits._windows import NO_WINDOW
from ephemera.wire import PreparedScript, Script

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits._rules import Rule

TAKE = Script.load("ephemera.patterns.rate_limits", "take")

_PATIENT = 2
"""Attempts that heed the server's word on the window; after them, nodes of a cluster disagree on the time."""

MOST_UNITS = 10**12
"""Units that the script counts exactly, whatever else it must multiply them with."""

_ALWAYS = float("inf")
_LETTERS = {"fixed": b"f", "sliding": b"s", "bucket": b"b"}


class Claim:
    """One rule on one subject; made by `rule.on(subject)`."""

    __slots__ = (
        "cost",
        "ends",
        "home",
        "id",
        "key",
        "keys",
        "limit",
        "rule",
        "settings",
        "starts",
        "subject",
        "taking",
        "told",
        "window",
        "words_of_one",
    )  # fmt: skip

    def __init__(
        self, rule: Rule, limit: int, subject: tuple[FieldValue, ...], cost: int | None = None
    ) -> None:
        self.rule = rule
        self.home = rule.home
        self.limit = limit
        self.subject = subject
        self.settings = rule.algorithm.settings(limit)
        self.cost = cost  # its own, whatever the check costs
        self.told: Any = None  # what the web adapters say of it in every response
        # What a subject's use is called between processes: its key, whatever the window.
        self.id = rule.space.template.render(_fields(rule, subject))
        if rule.window is None:
            self._be(self.id, -_ALWAYS, _ALWAYS, ())
        else:
            self.starts = self.ends = 0.0  # in no window yet

    def __repr__(self) -> str:
        return f"<claim {self.rule.name!r} on {', '.join(map(str, self.subject)) or 'everybody'}>"

    def costing(self, cost: int) -> Claim:
        """The same claim at a cost of its own, whatever the check's other claims cost."""
        return Claim(self.rule, self.limit, self.subject, check_cost(cost, self.rule.name))

    def turn(self, now: float) -> None:
        """Move to the fixed window of this moment, in milliseconds since 1970."""
        window = self.rule.window_at(now)
        key = self.id.removesuffix(NO_WINDOW) + window.written
        self._be(key, window.starts, window.ends, window.arguments)

    def words(self, cost: int) -> bytes:
        """What the script takes for this claim, in the window that it is in."""
        if cost == 1 or self.cost is not None:
            return self.words_of_one
        return self._packed(cost)

    def correction(self, units: int, taken_at: int) -> tuple[str, ...]:
        """What `rate_limits_settle.lua` takes to add units to those taken at a moment, in ms since 1970."""
        algorithm = self.rule.algorithm
        match algorithm:
            case FixedWindow():
                end = taken_at // algorithm.per * algorithm.per + algorithm.keep
                return self.id, "fixed", str(units), str(end)
            case SlidingWindow():
                stamp = algorithm.stamp(self.settings, taken_at)
                return self.id, "sliding", str(units), str(algorithm.per), str(stamp)
            case TokenBucket():
                interval, parts = self.settings[1:3]
                return self.id, "bucket", str(units), str(interval), str(parts)

    def _be(self, key: str, starts: float, ends: float, window: tuple[int, ...]) -> None:
        self.key, self.starts, self.ends = key, starts, ends
        self.window = window
        self.keys: tuple[str, ...] = (key,)
        self.words_of_one = self._packed(self.cost or 1)
        self.taking = PreparedScript(TAKE, self.keys, (b"t" + self.words_of_one,))

    def _packed(self, cost: int) -> bytes:
        numbers = (cost, *self.settings, *self.window)
        return _LETTERS[self.rule.algorithm.kind] + b"".join([each.to_bytes(6, "big") for each in numbers])


class JointClaim:
    """Several claims at their usual cost, made ready together."""

    __slots__ = ("claims", "ends", "home", "keys", "starts", "taking")

    def __init__(self, claims: tuple[Claim, ...]) -> None:
        self.claims = claims
        self.home = claims[0].home
        self.starts = self.ends = 0.0

    def turn(self, now: float) -> None:
        """Move all of them to the windows of this moment."""
        turn_all(self.claims, now)
        self.starts = max(claim.starts for claim in self.claims)
        self.ends = min(claim.ends for claim in self.claims)
        self.keys = tuple(claim.key for claim in self.claims)
        self.taking = PreparedScript(
            TAKE, self.keys, (b"t" + b"".join(claim.words(1) for claim in self.claims),)
        )


def plan(claims: Iterable[Claim], cost: int, mode: Literal["t", "p"], attempt: int) -> tuple[bytes]:
    """What the script takes to take or to peek, at a cost for those that have none of their own."""
    letter = mode if attempt < _PATIENT else mode.upper()
    return (letter.encode() + b"".join([claim.words(cost) for claim in claims]),)


def turn_all(claims: Sequence[Claim], now: float) -> None:
    """Move those to the windows of this moment that are not in them."""
    for claim in claims:
        if not claim.starts <= now < claim.ends:
            claim.turn(now)


def check_cost(cost: int, rule: str = "check") -> int:
    """A cost that can be taken."""
    if type(cost) is not int or not 1 <= cost <= MOST_UNITS:
        raise InvalidClaim(rule, f"it cannot cost {cost!r}", f"use a whole number from 1 to {MOST_UNITS}")
    return cost


def refuse_others(claims: Iterable[object]) -> None:
    """Raise when one of these is no claim: a rule, or a tier of it, without a subject."""
    for claim in claims:
        if not isinstance(claim, Claim):
            rule = getattr(claim, "rule", claim)
            raise InvalidClaim(
                getattr(rule, "name", "check"),
                f"{claim!r} is no claim, as it names no subject",
                "give rule.on(subject), or rule[tier].on(subject)",
            ) from None


def _fields(rule: Rule, subject: tuple[FieldValue, ...]) -> dict[str, FieldValue]:
    if len(subject) != len(rule.subject_fields):
        raise WrongFields(rule.space.pattern, rule.subject_fields, tuple(map(str, subject)))
    fields = {**rule.where, **dict(zip(rule.subject_fields, subject, strict=True))}
    if rule.window is not None:
        fields[rule.window.name] = ""
    return fields
