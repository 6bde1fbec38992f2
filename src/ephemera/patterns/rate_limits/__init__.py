"""Rate limits: so many units per period for each user, organization, address, in one trip, all or none.

Keys: one per rule and subject, by the rules' patterns; of fixed windows one per window, as
`ratelimit:{user_id}:{minute}`. They are a counter (fixed window), a packed log of at most 61 places (sliding
window), one moment (token bucket). Lifetimes: to the window's end or as long as `keep` says; to when the last
unit is free again; to when the bucket is full. State and lifetime are written by one SET, so a key whose end
was lost gets it back with the next unit. `{prefix}_denied` lists who was denied, for operators (`noting`).

Atomic: a check over any number of rules and subjects takes all their units or none, by one script, by the
server's clock; on a cluster each slot's claims are atomic, and across slots what was taken is given back when
one denies (`slot_groups`). A denied request takes nothing. Never more than the limit: per fixed window, in
any window of a sliding one, beyond the burst and the rate of a bucket. Fixed windows admit up to twice the
limit across a boundary; sliding ones do not.

A denial is remembered in this process until it can change (`denials`), so a subject that hammers costs the
server nothing.

Server down, or unable to write: each rule's `when_down` decides in microseconds: open, closed, or a local
share (`outage`). Server hung: the same, once the wire's timeout has passed for the first of them. Evicting or
emptied: counting starts anew, so at most one more limit fits into that window; where that matters use role
"queue" on a server that does not evict.
"""

from ephemera.patterns.rate_limits._claims import Claim
from ephemera.patterns.rate_limits._corrections import Reservation
from ephemera.patterns.rate_limits._decision import Decision, Outcome
from ephemera.patterns.rate_limits._declaration import RateLimits
from ephemera.patterns.rate_limits._kinds import fixed_window, sliding_window, token_bucket
from ephemera.patterns.rate_limits._limiter import Limiter
from ephemera.patterns.rate_limits._outage import LocalShare, WhenDown, local_share
from ephemera.patterns.rate_limits._rules import Limit, Rule

__all__ = [
    "Claim",
    "Decision",
    "Limit",
    "Limiter",
    "LocalShare",
    "Outcome",
    "RateLimits",
    "Reservation",
    "Rule",
    "WhenDown",
    "fixed_window",
    "local_share",
    "sliding_window",
    "token_bucket",
]
