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

from math import ceil
from time import monotonic

from ephemera.patterns.rate_limits import Claim, Decision
from ephemera.web._asgi import Header
from ephemera.web._problems import Problem

_TYPES = "https://iana.org/assignments/http-problem-types#"


def limit_headers(decision: Decision) -> list[Header]:
    """The fields that tell how a request's limits stand; none when the server could not be asked."""
    claims = decision.claims
    if decision.taken and len(claims) == 1:  # as most are
        remaining, reset = decision.single_state()
        name, policy = claims[0].header_memo or _tell(claims[0])
        return [policy, (b"ratelimit", b"%b;r=%d;t=%d" % (name, remaining, -(-reset // 1000)))]
    if not claims:
        return []
    # What was taken has just been; a denial may have been kept for a while.
    since = 0 if decision.taken else int((monotonic() - decision.decided_at) * 1000)
    policies, states = [], []
    for claim, (remaining, wait, reset) in zip(claims, decision.states(), strict=True):
        seconds = -((since - (wait if wait > 0 else reset)) // 1000)
        name, (_, policy) = claim.header_memo or _tell(claim)
        policies.append(policy)
        states.append(b"%b;r=%d;t=%d" % (name, remaining, max(0, seconds)))
    return [(b"ratelimit-policy", b", ".join(policies)), (b"ratelimit", b", ".join(states))]


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
    limits = ", ".join(
        f"{each.rule} allows {each.limit} per {_window(each.claim.rule.algorithm.per)} s" for each in violated
    )
    hope = "It is more than the limit at once." if wait is None else f"Try again in {_seconds(wait)} s."
    return Problem(
        429,
        "Quota Exceeded",
        f"Too many requests: {limits}. {hope}",
        f"{_TYPES}quota-exceeded",
        headers=headers,
        **{"violated-policies": names},
    )


def _tell(claim: Claim) -> tuple[bytes, Header]:
    """The name of a claim's rule as the fields have it, and its RateLimit-Policy; kept by it."""
    rule = claim.rule
    name = f'"{rule.name}"'.encode()
    policy = name + f";q={claim.limit};w={_window(rule.algorithm.per)}".encode()
    claim.header_memo = told = name, (b"ratelimit-policy", policy)
    return told


def _window(per: int) -> int:
    """Whole seconds: the draft has no shorter ones."""
    return -(-per // 1000)


def _seconds(wait: float) -> int:
    return max(1, ceil(wait))
