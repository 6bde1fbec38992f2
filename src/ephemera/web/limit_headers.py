"""What a response says about limits: RateLimit-Policy, RateLimit and Retry-After, and the refusal itself.

The fields are those of draft-ietf-httpapi-ratelimit-headers-11, which is not an RFC yet: two lists of
Structured Fields (RFC 9651), an item for each rule. A policy has the quota `q` and the window `w` in seconds;
the state has the units that remain, `r`, and the seconds `t` until there are more, or all of them.
`Retry-After` is whole seconds, rounded up, so nobody who obeys it comes early. Partition keys are left out:
they would name the subject.

A denial is 429 with the draft's problem type `quota-exceeded`; while Redis is away it is 503,
`temporary-reduced-capacity`. Both name the `violated-policies`, and neither may be stored by a cache.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

from ephemera.web.problems import Problem

if TYPE_CHECKING:
    from ephemera.patterns.rate_limits import Decision, Outcome
    from ephemera.web.asgi import Header

_TYPES = "https://iana.org/assignments/http-problem-types#"


def limit_headers(decision: Decision) -> list[Header]:
    """The fields that tell how a request's limits stand; none when the server could not be asked."""
    outcomes = decision.outcomes
    if not outcomes:
        return []
    policies = [_policy(each.rule, each.limit, _window(each)) for each in outcomes]
    states = [_state(each) for each in outcomes]
    return [(b"ratelimit-policy", b", ".join(policies)), (b"ratelimit", ", ".join(states).encode())]


def refusal(decision: Decision) -> Problem:
    """The answer to a request that was denied."""
    violated = decision.violated
    wait = decision.retry_after
    headers = [*limit_headers(decision), (b"cache-control", b"no-store")]
    if wait is not None:
        headers.append((b"retry-after", b"%d" % _seconds(wait)))
    names = [outcome.rule for outcome in violated]
    if decision.degraded:
        return Problem(
            503,
            "Temporary Reduced Capacity",
            "Requests cannot be counted at the moment, so fewer are served; please try again.",
            f"{_TYPES}temporary-reduced-capacity",
            headers=headers,
            **{"violated-policies": names},
        )
    limits = ", ".join(f"{each.rule} allows {each.limit} per {_window(each)} s" for each in violated)
    hope = "It is more than the limit at once." if wait is None else f"Try again in {_seconds(wait)} s."
    return Problem(
        429,
        "Quota Exceeded",
        f"Too many requests: {limits}. {hope}",
        f"{_TYPES}quota-exceeded",
        headers=headers,
        **{"violated-policies": names},
    )


@lru_cache(maxsize=1024)
def _policy(rule: str, limit: int, window: int) -> bytes:
    return f'"{rule}";q={limit};w={window}'.encode()


def _state(outcome: Outcome) -> str:
    wait = outcome.retry_after if outcome.violated and outcome.retry_after is not None else outcome.reset
    return f'"{outcome.rule}";r={outcome.remaining};t={ceil(wait)}'


def _window(outcome: Outcome) -> int:
    return -(-outcome.claim.rule.algorithm.per // 1000)


def _seconds(wait: float) -> int:
    return max(1, ceil(wait))
