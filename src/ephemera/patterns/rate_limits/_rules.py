"""Rules: a number of units per period for each subject, by one of three algorithms, perhaps by tier.

    SEARCH = sliding_window("search", 20, per=timedelta(minutes=1))
    API = fixed_window("api", {"free": 10, "pro": 60}, per=timedelta(minutes=1), key="api:{key_id}:{minute}")

    SEARCH.on(user_id)   API["pro"].on(key_id)   API.at(250).on(key_id)

A rule's key names its subjects by its fields. The fields that `where` gives belong to the rule, such as an
endpoint; the rest are what `on` takes, in order. Rules may share a pattern when `where` distinguishes them.

Limits may change at run time, by `store[LIMITS].set_limit(...)` or by `at`. Used units stay used: the count
of a window carries over, and a bucket carries over how full it is, as a fraction. A denial that was cached
under another limit is not used.

`local_share(of=8)` is for eight processes behind one load balancer: while the server is down, each admits an
eighth of the limit (at least one unit) in any window of the rule's period, counted exactly in its own memory.
Together they then keep the limit, or admit eight where the limit is below that. The server does not learn of
these units when it is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import InvalidClaim, InvalidDeclaration
from ephemera.keyspace import FieldValue, Keyspace
from ephemera.patterns.rate_limits._claims import MAX_UNITS, Algorithm, Claim, TokenBucket, WindowField

NO_TIER = ""
"""The tier of a rule that has none."""

_CLAIMS_CACHED = 2048  # for each limit of a rule, about 1 KB each
_GIVEN_LIMITS_CACHED = 256  # limits given by `at`
_GIVEN_CLAIMS_CACHED = 256  # claims of each of those
_LONGEST_REFILL = 8 * 365 * 86_400 * 1_000_000  # microseconds: less than the 48 bits that the script takes
_FASTEST_UNIT = 10  # nanoseconds in which a unit of a bucket comes back: less would not be exact


@dataclass(frozen=True, slots=True)
class LocalShare:
    """One of `of` processes that share a limit."""

    of: int


WhenDown: TypeAlias = Literal["open", "closed"] | LocalShare
"""The policy while the server is down: admit, deny, or admit this process's share of the limit."""


def local_share(*, of: int) -> LocalShare:
    """The policy of one among `of` processes: each admits its share of the limit by itself."""
    if of < 1:
        raise InvalidDeclaration("local_share", f"of={of} processes", "give how many share the limit")
    return LocalShare(of)


class Limit:
    """A rule at one limit: its own, a tier's, or one given to `at`."""

    __slots__ = ("_claims", "limit", "rule", "tier")

    def __init__(self, rule: Rule, limit: int, tier: str | None, cached: int = _CLAIMS_CACHED) -> None:
        self.rule = rule
        self.limit = check_limit(rule, limit)
        self.tier = tier
        self._claims: BoundedCache[tuple[FieldValue, ...], Claim] = BoundedCache(cached)

    def on(self, *subject: FieldValue) -> Claim:
        """The claim of a subject, for `check`."""
        claim = self._claims.get(subject)
        if claim is None:
            if self.rule.limits is None:
                raise InvalidClaim(
                    self.rule.name,
                    "no RateLimits declares this rule, so it has no keys",
                    "give it to one: RateLimits(catalogue, 'ratelimit', rule)",
                )
            claim = self._claims[subject] = Claim(self.rule, self.limit, self.tier, subject)
        return claim

    def __repr__(self) -> str:
        return f"<{self.rule.name!r} at {self.limit}>"


class Rule:
    """One limit on subjects of one kind; made by `fixed_window`, `sliding_window` or `token_bucket`."""

    limits: object = None  # the RateLimits that declares it, which also sets the next three
    keyspace: Keyspace[Any]
    subject_fields: tuple[str, ...]
    window: WindowField | None = None

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
        if when_down not in ("open", "closed") and not isinstance(when_down, LocalShare):
            raise InvalidDeclaration(
                name, f"when_down={when_down!r} is unknown", "use 'open', 'closed' or local_share(of=...)"
            )
        self.name = name
        self.algorithm = algorithm
        self.key = key
        self.where = dict(where or {})
        self.hash_tag = hash_tag
        self.when_down = when_down
        tiers = limit if isinstance(limit, Mapping) else {NO_TIER: limit}
        self._tiers = {tier: Limit(self, units, tier) for tier, units in tiers.items()}
        only = self._tiers.get(NO_TIER)
        self._claims = (
            {} if only is None else only._claims
        )  # the hot path: `on` of a cached claim is one lookup
        self._given: BoundedCache[int, Limit] = BoundedCache(_GIVEN_LIMITS_CACHED)

    def __repr__(self) -> str:
        return f"<rule {self.name!r}: {self.algorithm}>"

    def on(self, *subject: FieldValue) -> Claim:
        """The claim of a subject, for `check`; with tiers, choose one first: `rule["pro"].on(subject)`."""
        try:
            return self._claims[subject]
        except KeyError:
            return self[NO_TIER].on(*subject)

    def __getitem__(self, tier: str) -> Limit:
        """The rule at a tier's limit."""
        limit = self._tiers.get(tier)
        if limit is None:
            known = ", ".join(map(repr, filter(None, self._tiers)))
            raise InvalidClaim(
                self.name,
                f"it has no tier {tier!r}" if tier else "it has tiers, and none was chosen",
                f"use one of {known}, as in rule[tier].on(...)" if known else "use rule.on(...)",
            )
        return limit

    def at(self, limit: int) -> Limit:
        """The rule at another limit, such as one agreed with a customer."""
        found = self._given.get(limit)
        if found is None:
            found = self._given[limit] = Limit(self, limit, None, _GIVEN_CLAIMS_CACHED)
        return found

    @property
    def tiers(self) -> dict[str, int]:
        """The declared limits by tier; of a rule without tiers, under an empty name."""
        return {tier: limit.limit for tier, limit in self._tiers.items()}


def check_limit(rule: Rule, limit: int) -> int:
    """Return a limit that can be counted, or raise; 0 admits nothing."""
    if type(limit) is not int or not 0 <= limit <= MAX_UNITS:
        advice = f"use an integer from 0 to {MAX_UNITS}"
        raise InvalidDeclaration(rule.name, f"its limit is {limit!r}", advice)
    algorithm = rule.algorithm
    if isinstance(algorithm, TokenBucket):
        if algorithm.per * 1_000_000 < limit * _FASTEST_UNIT:
            advice = "use at most 100 million per second, or larger units"
            raise InvalidDeclaration(rule.name, f"its limit is {limit} per {algorithm.per} ms", advice)
        if algorithm.settings(limit)[3] > _LONGEST_REFILL:
            problem = f"a burst of {algorithm.capacity(limit)} takes more than eight years to come back"
            raise InvalidDeclaration(rule.name, problem, "use a smaller burst, or a higher limit")
    return limit
