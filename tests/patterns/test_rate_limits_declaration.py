"""Declaring limits: their keys, their keyspaces in the catalogue, and invalid declarations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, OverlappingPatterns
from ephemera.keyspace import Catalogue, connect
from ephemera.patterns.rate_limits import (
    Claim,
    RateLimits,
    Rule,
    fixed_window,
    local_share,
    sliding_window,
    token_bucket,
)
from ephemera.patterns.rate_limits._claims import roll_window
from tests.patterns.limit_fixtures import (
    ASK,
    BUCKET,
    CATALOGUE,
    DAY,
    HOUR,
    KEY,
    LIMITS,
    LOG,
    LOGIN,
    MINUTE,
    PASSAGES,
    READ,
    USER,
    WINDOW,
    new_subject,
)
from tests.untyped import untyped


def _now(server: Valkey) -> datetime:
    seconds = server.ask("TIME")
    assert isinstance(seconds, list)
    return datetime.fromtimestamp(int(seconds[0]), UTC)


async def test_keys_are_as_declared(server: Valkey) -> None:
    """Each rule counts in its declared key, by the server's minute or hour in UTC."""
    who = new_subject()

    def expected(now: datetime) -> dict[str, int]:
        """Keys, and when they expire, in seconds since 1970."""
        start = int(now.timestamp())
        return {
            f"ratelimit:{who}:{now:%Y%m%d%H%M}": start - start % 60 + 120,
            f"ratelimit:user:{who}:{now:%Y%m%d%H%M}": start - start % 60 + 120,
            f"rate:{who}:/api/profiles:{now:%Y%m%d%H}": start - start % 3600 + 3600,
            f"rate:{who}:/auth/login:{now:%Y%m%d%H}": start - start % 3600 + 3600,
            f"gl:ratelimit:{who}:passages:{start - start % 60}": start - start % 60 + 60,
            f"gl:ratelimit:{who}:ask:{start - start % 3600}": start - start % 3600 + 3600,
        }

    claims = [KEY["pro"].on(who), *(rule.on(who) for rule in (USER, READ, LOGIN, PASSAGES, ASK))]
    async with connect(server.url, CATALOGUE) as store:
        before = _now(server)
        decision = await store[LIMITS].check(*claims)
        while before.minute != _now(server).minute:  # the minute ended during the test
            before = _now(server)
            decision = await store[LIMITS].check(*claims)
        assert sorted(decision._keys) == sorted(expected(before))
        for key, ends in expected(before).items():
            assert await store.call("GET", key) in (b"1", b"2")
            assert await store.call("EXPIRETIME", key) == ends


def test_the_catalogue_classifies_every_key() -> None:
    """Each pattern is a keyspace with a purpose and a lifetime, and classifies its keys."""
    patterns = {space.pattern for space in CATALOGUE}
    assert {"ratelimit:{api_key_id}:{minute}", "rate:{subject}:{endpoint}:{yyyyMMddHH}"} < patterns
    space = CATALOGUE.classify(b"rate:u1:/auth/login:2025093010")
    assert space is not None
    assert space.purpose == "Use of the limits profile-read, login"
    assert str(space.lifetime) == "1 h from the first write of each 1 h window"
    assert str(CATALOGUE["limited:log:{subject}"].lifetime) == "1464 min"
    assert str(CATALOGUE["limited:bucket:{subject}"].lifetime) == "until its instant"
    assert CATALOGUE["limited:freed"].kind == "channel"
    for claim in (WINDOW.on("x:y{z}"), LOG.on("x:y{z}"), BUCKET.on("x:y{z}")):
        assert _owner(claim) is claim.rule.keyspace


def _owner(claim: Claim) -> Any:
    if claim.rule.window is not None:
        roll_window(claim, 0)
    return CATALOGUE.classify(claim.key.encode())


async def test_keys_expire_when_their_content_is_obsolete(server: Valkey) -> None:
    """The TTL reaches to the window's end, to the end of the last unit, or to the full bucket."""
    async with connect(server.url, CATALOGUE) as store:
        for rule, at_most in ((WINDOW, 86_400), (LOG, 86_401), (BUCKET, 2 * 17_281)):
            claim = rule.on(new_subject())
            for _ in range(2):
                await store[LIMITS].check(claim)
                assert 0 < await store.call("PTTL", claim.key) <= at_most * 1000


def _declared(*rules: Rule, **options: Any) -> RateLimits:
    return RateLimits(Catalogue("t"), "t", *rules, **options)


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda: fixed_window("no spaces", 1, per=DAY), "'no spaces': it cannot name a rule"),
        (lambda: fixed_window("r", -1, per=DAY), "'r': its limit is -1"),
        (lambda: fixed_window("r", untyped({"free": 1.5}), per=DAY), "'r': its limit is 1.5"),
        (lambda: sliding_window("r", 1, per=timedelta(0)), "'r': a period of 0:00:00"),
        (lambda: fixed_window("r", 1, per=timedelta(seconds=1.5)), "windows of whole seconds"),
        (lambda: fixed_window("r", 1, per=HOUR, keep=MINUTE), "keep a key for at least its window"),
        (lambda: sliding_window("r", 1, per=400 * DAY), "use 100 milliseconds to 366 days"),
        (lambda: token_bucket("r", 1, per=DAY, burst=0), "use a burst of 1 to"),
        (lambda: token_bucket("r", 10**10, per=MINUTE), "use at most 100 million per second"),
        (lambda: token_bucket("r", 1, per=DAY, burst=10**9), "takes more than eight years to come back"),
        (lambda: fixed_window("r", 1, per=DAY, when_down=untyped("ajar")), "when_down='ajar' is unknown"),
        (lambda: local_share(of=0), "of=0 processes"),
        (lambda: _declared(), "it has no rules"),
        (
            lambda: _declared(fixed_window("r", 1, per=DAY), sliding_window("r", 1, per=DAY)),
            "two of its rules have the same name",
        ),
        (
            lambda: _declared(fixed_window("r", 1, per=HOUR, key="r:{who}")),
            "'r:{who}': it does not end with a field that names the window",
        ),
        (
            lambda: _declared(fixed_window("r", 1, per=MINUTE, key="r:{who}:{hour}")),
            "{hour} has a resolution of 3600 s, its windows are 60 s long",
        ),
        (
            lambda: _declared(sliding_window("r", 1, per=DAY, key="r:{who}", where={"what": "x"})),
            "where= of r names what, which is not a field of it; its fields are who",
        ),
        (
            lambda: _declared(
                sliding_window("a", 1, per=DAY, key="r:{who}"), sliding_window("b", 1, per=DAY, key="r:{who}")
            ),
            "a and b would count in the same keys",
        ),
        (
            lambda: _declared(
                sliding_window("a", 1, per=DAY, key="r:{who}"), token_bucket("b", 1, per=DAY, key="r:{who}")
            ),
            "a and b would store different things in it",
        ),
        (
            lambda: _declared(
                sliding_window("a", 1, per=DAY, key="r:{who}:{what}", where={"what": "x"}),
                sliding_window("b", 1, per=DAY, key="r:{who}:{what}"),
            ),
            "share the algorithm, the hash tag and the fields of where=",
        ),
    ],
)
def test_invalid_declarations_are_refused(declare: Callable[[], object], problem: str) -> None:
    """The error names the rule or the pattern, the problem, and what to do."""
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert problem in str(refused.value)


def test_a_rule_is_declared_once() -> None:
    """A rule cannot belong to two `RateLimits`."""
    rule = fixed_window("r", 1, per=DAY)
    _declared(rule)
    with pytest.raises(InvalidDeclaration, match="'r': it is declared already"):
        _declared(rule)


def test_patterns_of_limits_may_not_overlap_others() -> None:
    """The catalogue refuses overlapping patterns as for every key."""
    catalogue = Catalogue("t")
    RateLimits(catalogue, "s", fixed_window("a", 1, per=DAY, key="t:{who}:{day}"))
    with pytest.raises(OverlappingPatterns):
        RateLimits(catalogue, "t", sliding_window("b", 1, per=DAY))


def test_limits_that_must_not_be_evicted_go_to_the_queue_server() -> None:
    """With role queue every keyspace says what it outlives."""
    limits = _declared(
        fixed_window("a", 1, per=DAY),
        sliding_window("b", 1, per=DAY),
        token_bucket("c", 1, per=DAY),
        role="queue",
    )
    assert {space.role for space in limits.catalogue} == {"queue"}
    assert limits["b"].keyspace.lifetime.outlives == "the window that it counts"
