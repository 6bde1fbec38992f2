"""Rate limits: a number of units per period for each user, organization or address, checked together.

    API = sliding_window("api", {"free": 10, "pro": 60}, per=timedelta(minutes=1))
    LOGIN = fixed_window("login", 5, per=timedelta(hours=1))
    LIMITS = RateLimits(catalogue, "ratelimit", API, LOGIN)
    decision = await store[LIMITS].check(API["pro"].on(user_id), LOGIN.on(address))

*Keys.* One per rule and subject, by the rules' patterns; for fixed windows one per window, as in
`ratelimit:{user_id}:{minute}`. A fixed window is a counter, a sliding window a packed log of at most 61
entries, a token bucket one timestamp. `{prefix}_denied` lists the denied subjects, for operators.

*Lifetimes.* To the window's end or for as long as `keep` says; until the last unit is free again; until the
bucket is full. State and TTL are written by one SET, so a key that lost its TTL gets it back with the next
unit.

*Atomicity.* A check over any number of rules and subjects takes all their units or none, in one script, by
the server's clock. On a cluster the claims of each slot are atomic, and across slots the units taken are
given back when one slot denies. A denied request takes nothing. Never more than the limit is admitted: per
fixed window, in any window of a sliding one, beyond the burst and the rate of a bucket. Fixed windows admit
up to twice the limit across a boundary; sliding ones do not.

*Denials* are cached in this process until they can change, so a subject that keeps trying costs the server
nothing.

*When Redis is down*, or unable to write, each rule's `when_down` decides in microseconds: open, closed, or a
local share of the limit. If the server hangs, the same happens once the timeout has passed for the first
call. After an eviction or a flush counting starts again, so at most one more limit fits into that window;
where that matters use role "queue" on a server that does not evict.
"""

from ephemera.patterns.rate_limits._claims import Claim
from ephemera.patterns.rate_limits._decision import Decision, Outcome, limit_headers
from ephemera.patterns.rate_limits._declaration import (
    RateLimits,
    fixed_window,
    sliding_window,
    token_bucket,
)
from ephemera.patterns.rate_limits._denials import MAX_LOGGED, DeniedClaim, RuleCounts
from ephemera.patterns.rate_limits._rules import Limit, LocalShare, Rule, WhenDown, local_share
from ephemera.patterns.rate_limits._runtime import BoundRateLimits, CostReservation

__all__ = [
    "MAX_LOGGED",
    "BoundRateLimits",
    "Claim",
    "CostReservation",
    "Decision",
    "DeniedClaim",
    "Limit",
    "LocalShare",
    "Outcome",
    "RateLimits",
    "Rule",
    "RuleCounts",
    "WhenDown",
    "fixed_window",
    "limit_headers",
    "local_share",
    "sliding_window",
    "token_bucket",
]
