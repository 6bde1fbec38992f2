"""Rules: so many units per period for each subject, by one of three algorithms, perhaps by tier.

    SEARCH = sliding_window("search", 20, per=timedelta(minutes=1))
    API = fixed_window("api", {"free": 10, "pro": 60}, per=timedelta(minutes=1), key="api:{key_id}:{minute}")

    SEARCH.on(user_id)   API["pro"].on(key_id)   API.at(250).on(key_id)

A rule's key names its subjects by its fields. Those that `where` gives are the rule's own, as an endpoint is;
the rest are what `on` takes, in order. Rules may share a pattern when `where` tells them apart.

Tiers and limits may change at run time, by `change` or by `at`. What was used stays used: counts of a window
carry over, and a bucket carries over how full it is as a fraction. The new limit holds from the next `on`; a
denial that was remembered under another limit is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ephemera.errors import InvalidClaim, InvalidDeclaration
from ephemera.keyspace import FieldValue, Keyspace
from ephemera.patterns.rate_limits._algorithms import Algorithm, TokenBucket
from ephemera.patterns.rate_limits._claims import MOST_UNITS, Claim
from ephemera.patterns.rate_limits._outage import WhenDown, check_policy
from ephemera.patterns.rate_limits._windows import Window, WindowField

_CLAIMS_KEPT = 4096  # for each limit; then they are made anew
_LIMITS_KEPT = 256  # of those that `at` gave
_ONLY = ""  # the tier of a rule that has none
_GIVEN_KEPT = 256  # claims of each of those
_LONGEST = 8 * 365 * 86_400 * 1_000_000  # microseconds: less than the 48 bits that the script takes
_FASTEST = 10  # nanoseconds that a unit of a bucket takes to come back: closer would not be exact


class Limit:
    """A rule at one limit: the rule's own, a tier's, or one that was given to `at`."""

    __slots__ = ("claims", "limit", "most", "rule")

    def __init__(self, rule: Rule, limit: int, most: int = _CLAIMS_KEPT) -> None:
        self.rule = rule
        self.limit = check_limit(rule, limit)
        self.most = most
        self.claims: dict[tuple[FieldValue, ...], Claim] = {}

    def on(self, *subject: FieldValue) -> Claim:
        """The claim of a subject, for `check`."""
        try:
            return self.claims[subject]
        except KeyError:
            return self.claim(subject)

    def claim(self, subject: tuple[FieldValue, ...]) -> Claim:
        """A claim that is not kept yet."""
        self.rule.check_declared()
        claim = Claim(self.rule, self.limit, subject)
        if len(self.claims) >= self.most:
            self.claims.clear()
        self.claims[subject] = claim
        return claim

    def __repr__(self) -> str:
        return f"<{self.rule.name!r} at {self.limit}>"


class Rule:
    """One limit on subjects of one kind; made by one of `kinds`."""

    space: Keyspace[Any]
    subject_fields: tuple[str, ...]
    window: WindowField | None

    def __init__(
        self,
        name: str,
        algorithm: Algorithm,
        limit: int | Mapping[str, int],
        *,
        key: str | None,
        where: Mapping[str, FieldValue] | None,
        hash_tag: str | None,
        when_down: WhenDown,
    ) -> None:
        self.name = name
        self.algorithm = algorithm
        self.key = key
        self.where = dict(where or {})
        self.hash_tag = hash_tag
        self.when_down = check_policy(name, when_down)
        self.home: object = None  # the RateLimits that declares it
        tiers = limit if isinstance(limit, Mapping) else {_ONLY: limit}
        self._tiers = {tier: Limit(self, units) for tier, units in tiers.items()}
        self._given: dict[int, Limit] = {}
        self._claims: dict[tuple[FieldValue, ...], Claim] = {}
        self._window: Window | None = None
        self._use_only()

    def __repr__(self) -> str:
        return f"<rule {self.name!r}: {self.algorithm}>"

    def on(self, *subject: FieldValue) -> Claim:
        """The claim of a subject, for `check`; with tiers, choose one first: `rule["pro"].on(subject)`."""
        try:
            return self._claims[subject]
        except KeyError:
            return self._tier(_ONLY).claim(subject)

    def __getitem__(self, tier: str) -> Limit:
        """The rule at a tier's limit."""
        return self._tier(tier)

    def at(self, limit: int) -> Limit:
        """The rule at another limit, such as one agreed with a customer."""
        found = self._given.get(limit)
        if found is None:
            if len(self._given) >= _LIMITS_KEPT:
                self._given.clear()
            found = self._given[limit] = Limit(self, limit, _GIVEN_KEPT)
        return found

    def change(self, limit: int, tier: str = _ONLY) -> None:
        """Set a limit of this process from now on; the next `on` has it. What was used stays used."""
        self._tier(tier)
        self._tiers[tier] = Limit(self, limit)
        self._use_only()

    @property
    def tiers(self) -> dict[str, int]:
        """The present limits by tier; of a rule without tiers, under an empty name."""
        return {tier: limit.limit for tier, limit in self._tiers.items()}

    def window_at(self, now: float) -> Window:
        """The fixed window of a moment; all claims share the last one."""
        window = self._window
        if window is None or not window.starts <= now < window.ends:
            assert self.window is not None  # noqa: S101 - only claims of fixed windows turn
            window = self._window = self.window.at(now)
        return window

    def check_declared(self) -> None:
        """Raise when no `RateLimits` has declared this rule."""
        if self.home is None:
            raise InvalidClaim(
                self.name,
                "no RateLimits declares this rule, so it has no keys",
                "give it to one: RateLimits(catalogue, 'ratelimit', rule)",
            )

    def _use_only(self) -> None:
        if _ONLY in self._tiers:
            self._claims = self._tiers[_ONLY].claims

    def _tier(self, tier: str) -> Limit:
        try:
            return self._tiers[tier]
        except KeyError:
            known = ", ".join(map(repr, filter(None, self._tiers)))
            raise InvalidClaim(
                self.name,
                f"it has no tier {tier!r}" if tier else "it has tiers, and none was chosen",
                f"use one of {known}, as in rule[tier].on(...)" if known else "use rule.on(...)",
            ) from None


def check_limit(rule: Rule, limit: int) -> int:
    """A limit that can be counted; 0 admits nothing."""
    if type(limit) is not int or not 0 <= limit <= MOST_UNITS:
        advice = f"use a whole number from 0 to {MOST_UNITS}"
        raise InvalidDeclaration(rule.name, f"its limit is {limit!r}", advice)
    algorithm = rule.algorithm
    if isinstance(algorithm, TokenBucket):
        if algorithm.per * 1_000_000 < limit * _FASTEST:
            advice = "use at most 100 million per second, or larger units"
            raise InvalidDeclaration(rule.name, f"its limit is {limit} per {algorithm.per} ms", advice)
        if algorithm.settings(limit)[3] > _LONGEST:
            problem = f"a burst of {algorithm.capacity(limit)} takes more than eight years to come back"
            raise InvalidDeclaration(rule.name, problem, "use a smaller burst, or a higher limit")
    return limit
