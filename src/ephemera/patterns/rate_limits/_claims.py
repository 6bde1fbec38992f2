"""Claims, and the three algorithms that decide them, as parameters of `lua/take.lua` and decoders of replies.

- **fixed window**: a counter per window. Cheapest, readable keys; admits twice the limit across a boundary.
- **sliding window**: never more than the limit in any window, by the server's clock. A log of units by grain:
  each counts from the end of its grain, so a unit never leaves early, and at most one grain late. Up to
  `MAX_GRAINS` units per window the grain is a millisecond and the log is exact; above, a sixtieth of the
  window, and the log has at most `MAX_GRAINS + 1` entries of 12 bytes however high the limit is.
- **token bucket**: GCRA. The one number stored is the moment when the bucket is full again; a unit moves it
  by `interval`, and there is room while it stays within `burst` intervals from now. Whole microseconds,
  rounded up.

The last field of a fixed window's pattern says by its name how the window's start is written, as in
`ratelimit:{api_key_id}:{minute}` or `rate:{subject}:{endpoint}:{yyyyMMddHH}`:

| field | format | for windows of |
|---|---|---|
| `minute`, `yyyyMMddHHmm` | `202509301059` | whole minutes |
| `hour`, `yyyyMMddHH` | `2025093010` | whole hours |
| `day`, `yyyyMMdd` | `20250930` | whole days |
| `window_start`, `window` | `1759226340`, seconds since 1970 | whole seconds |

Windows are counted from 1970 in UTC, so a day is a UTC day. A pattern whose field is coarser than its window
would put two windows into one key, and is refused.

A claim is one rule on one subject, as `check` takes it, with the script's arguments prepared. Claims are
cached by their rule, so a subject that returns costs a dict lookup. Several claims that are checked together
are cached as one `JointClaim`. The key of a fixed window changes with the window: `roll_window` makes the
next one when the server's time, as estimated, has left the current one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import RLock
from time import monotonic, time
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ephemera.errors import InvalidClaim, InvalidDeclaration, WrongFields
from ephemera.keyspace import FieldValue
from ephemera.wire import PreparedScript, Script

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits._rules import Rule


MAX_GRAINS = 60
"""Entries of a sliding window's log, except for one more."""

EMPTY_FIELD = "%%"
"""How a key renders an empty field, and no other value."""

Settings: TypeAlias = tuple[int, ...]
"""The script's arguments for a rule at a limit, after the cost."""

_FORMATS: dict[str, tuple[str | None, int]] = {
    "minute": ("%Y%m%d%H%M", 60),
    "yyyyMMddHHmm": ("%Y%m%d%H%M", 60),
    "hour": ("%Y%m%d%H", 3600),
    "yyyyMMddHH": ("%Y%m%d%H", 3600),
    "day": ("%Y%m%d", 86_400),
    "yyyyMMdd": ("%Y%m%d", 86_400),
    "window_start": (None, 1),
    "window": (None, 1),
}
"""The format of each window field (None: seconds since 1970), and its resolution in seconds."""

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


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """Consecutive windows, each with its own key; times in milliseconds."""

    per: int
    keep: int
    kind: Literal["fixed"] = "fixed"

    def settings(self, limit: int) -> Settings:
        """The limit; the window follows, and belongs to the claim."""
        return (limit,)

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left."""
        return max(0, settings[0] - used)

    def used(self, settings: Settings, remaining: int) -> int:
        """The units used when this many are left."""
        return settings[0] - remaining

    def after(self, settings: Settings, used: int, cost: int, now: int) -> tuple[int, int]:
        """Units left and milliseconds to the reset, once `cost` was taken at `now`."""
        return self.remaining(settings, used + cost), self.per - now % self.per


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The last `per` milliseconds at any moment."""

    per: int
    kind: Literal["sliding"] = "sliding"

    def grain(self, limit: int) -> int:
        """Milliseconds whose units share an entry of the log."""
        return 1 if limit <= MAX_GRAINS else max(1, -(-self.per // MAX_GRAINS))

    def stamp(self, settings: Settings, now: int) -> int:
        """The end of the grain of `now`, from which a unit counts."""
        grain = settings[2]
        return now - now % grain + grain

    def settings(self, limit: int) -> Settings:
        """Limit, window and grain."""
        return limit, self.per, self.grain(limit), 0

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left."""
        return max(0, settings[0] - used)

    def used(self, settings: Settings, remaining: int) -> int:
        """The units used when this many are left."""
        return settings[0] - remaining

    def after(self, settings: Settings, used: int, cost: int, now: int) -> tuple[int, int]:
        """Units left and milliseconds until none is in use, once `cost` was taken at `now`."""
        return self.remaining(settings, used + cost), self.stamp(settings, now) + self.per - now


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A bucket that holds `burst` units at the rule's own limit, and gets `limit` of them back per `per`."""

    per: int
    limit: int
    burst: int
    kind: Literal["bucket"] = "bucket"

    def interval(self, limit: int) -> tuple[int, int]:
        """The time in which one unit comes back, as a fraction of microseconds; rounded up."""
        parts = 1000 if self.per * 1_000_000 < limit << 47 else 1  # nanoseconds, if six bytes hold them
        return -(-self.per * 1000 * parts // limit) if limit else 1, parts

    def capacity(self, limit: int) -> int:
        """Units in a full bucket: at another limit, the same proportion."""
        return max(1, self.burst * limit // self.limit) if limit else 0

    def settings(self, limit: int) -> Settings:
        """Capacity, interval, and the microseconds in which an empty bucket fills."""
        capacity, (interval, parts) = self.capacity(limit), self.interval(limit)
        return capacity, interval, parts, -(-capacity * interval // parts)

    def remaining(self, settings: Settings, used: int) -> int:
        """Units left; `used` is in microseconds."""
        _, interval, parts, time = settings
        return max(0, (time - used) * parts // interval)

    def used(self, settings: Settings, remaining: int) -> int:
        """The microseconds used when this many units are left."""
        _, interval, parts, time = settings
        return time + -remaining * interval // parts

    def after(self, settings: Settings, used: int, cost: int, _now: int) -> tuple[int, int]:
        """Units left and milliseconds until the bucket is full, once `cost` was taken."""
        _, interval, parts, time = settings
        used -= -cost * interval // parts
        return (time - used) * parts // interval if used < time else 0, -(-used // 1000)


Algorithm: TypeAlias = FixedWindow | SlidingWindow | TokenBucket


class LimitWindow(NamedTuple):
    """One fixed window: its bounds in milliseconds since 1970, its text in a key, the script's arguments."""

    starts: int
    ends: int
    text: str
    arguments: tuple[int, int, int]


class WindowField:
    """The field of a pattern that names the window, for windows of `per` ms kept for `keep` ms."""

    def __init__(self, pattern: str, fields: tuple[str, ...], per: int, keep: int) -> None:
        self.name = fields[-1] if fields else ""
        if self.name not in _FORMATS or not pattern.endswith(f"{{{self.name}}}"):
            raise InvalidDeclaration(
                pattern,
                "it does not end with a field that names the window",
                f"end it with one of {', '.join(_FORMATS)}, as in 'ratelimit:{{user_id}}:{{minute}}'",
            )
        self._format, resolution = _FORMATS[self.name]
        if per % (resolution * 1000):
            raise InvalidDeclaration(
                pattern,
                f"{{{self.name}}} has a resolution of {resolution} s, its windows are {per / 1000:g} s long",
                "use a finer field such as {window_start}, or windows of a multiple of that",
            )
        self._per = per
        self._keep = keep
        self._current = LimitWindow(0, 0, "", (0, 0, 0))

    def at(self, now: float) -> LimitWindow:
        """The window of a moment, in milliseconds since 1970; all claims of a rule share the last one."""
        current = self._current  # another thread may replace it
        if not current.starts <= now < current.ends:
            start = int(now) // self._per * self._per
            seconds, end = start // 1000, start + self._per
            text = str(seconds)
            if self._format is not None:
                text = datetime.fromtimestamp(seconds, UTC).strftime(self._format)
            self._current = current = LimitWindow(start, end, text, (start, end, start + self._keep))
        return current


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
