"""Eight concurrent processes: exactly the limit is admitted, including across windows' edges."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import connect
from ephemera.patterns.rate_limits import BoundRateLimits, Claim
from tests.patterns.limit_fixtures import BRIEF, CATALOGUE, CROWD, FLOW, KINDS, LIMITS, SECONDLY, new_subject

_PROCESSES = 8
_SECONDS = 2.5
_DAILY = 100


@pytest.fixture(params=["server", "cluster"])
def target(request: pytest.FixtureRequest) -> Valkey | Cluster:
    """One server, and then a cluster."""
    running: Valkey | Cluster = request.getfixturevalue(request.param)
    return running


async def test_eight_processes_are_admitted_exactly_the_limit(target: Valkey | Cluster) -> None:
    """Each algorithm admits the whole limit and not one unit more, in every window."""
    limits = dict.fromkeys(KINDS, _DAILY) | {SECONDLY: 50, BRIEF: 50, CROWD: 600, FLOW: 20}
    # Each process continues until it has its share of more than one window.
    least = {SECONDLY: 7, BRIEF: 7, CROWD: 76, FLOW: 6}
    rules = [f"{rule.name}={limit}/{least.get(rule, 0)}" for rule, limit in limits.items()]
    arguments = (target.url, new_subject(), str(_SECONDS), *rules)
    runs = await asyncio.gather(*(_run_process(*arguments) for _ in range(_PROCESSES)))
    admitted = {
        rule.name: sorted(moment for run in runs for moment in run[rule.name]["admitted"]) for rule in limits
    }

    for rule in KINDS:
        assert len(admitted[rule.name]) == _DAILY
    by_window = Counter(moment // 1000 for moment in admitted["secondly"])
    assert max(by_window.values()) == 50
    used_up = {second for run in runs for second in run["secondly"]["denied"]}
    assert {by_window[second] for second in used_up} == {50}
    for rule, limit in ((BRIEF, 50), (CROWD, 600)):
        moments = admitted[rule.name]
        assert len(moments) > limit
        intervals = [later - earlier for earlier, later in zip(moments, moments[limit:], strict=False)]
        assert min(intervals) >= rule.algorithm.per
    moments = admitted["flow"]
    assert len(moments) > 40
    for first, begun in enumerate(moments):
        for count, moment in enumerate(moments[first:], start=1):
            assert count <= 5 + (moment - begun + 1) / 50


async def _run_process(*arguments: str) -> dict[str, dict[str, list[int]]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.patterns.limit_load", *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    printed: dict[str, dict[str, list[int]]] = json.loads(out)
    return printed


async def test_checks_over_several_subjects_never_exceed_any_of_them(target: Valkey | Cluster) -> None:
    """Checks of a common claim with an own one admit exactly the common limit, and lose no own units."""
    common = KINDS[0].at(_DAILY).on(new_subject())
    async with AsyncExitStack() as opened:
        url = target.url
        limiters = [(await opened.enter_async_context(connect(url, CATALOGUE)))[LIMITS] for _ in range(4)]
        racers = [(limiter, KINDS[1].at(1000).on(new_subject())) for limiter in limiters for _ in range(5)]
        admitted = await asyncio.gather(*(_race(limiter, own, common) for limiter, own in racers))
        assert sum(admitted) == _DAILY
        for (limiter, own), count in zip(racers, admitted, strict=True):
            assert (await limiter.peek(own)).remaining == 1000 - count


async def _race(limiter: BoundRateLimits, own: Claim, common: Claim) -> int:
    """Check until the common limit is used up, and return how often both were admitted."""
    admitted = 0
    while (await limiter.check(own, common)).allowed:
        admitted += 1
    return admitted
