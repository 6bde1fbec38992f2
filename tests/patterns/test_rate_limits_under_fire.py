"""Eight processes that want all they can get: exactly the limit is admitted, across windows' edges, too."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import connect
from ephemera.patterns.rate_limits import Claim, Limiter
from tests.patterns.limited import BRIEF, CATALOGUE, CROWD, FLOW, KINDS, LIMITS, SECONDLY, somebody

_PROCESSES = 8
_SECONDS = 2.5
_DAILY = 100


@pytest.fixture(params=["server", "cluster"])
def hammered(request: pytest.FixtureRequest) -> Valkey | Cluster:
    """One server, and then a cluster."""
    running: Valkey | Cluster = request.getfixturevalue(request.param)
    return running


async def test_eight_processes_are_admitted_exactly_the_limit(hammered: Valkey | Cluster) -> None:
    """By each algorithm the whole limit is given out and not one unit more, in every window."""
    limits = dict.fromkeys(KINDS, _DAILY) | {SECONDLY: 50, BRIEF: 50, CROWD: 600, FLOW: 20}
    # Each process goes on until it has its share of more than one window, however long that takes.
    least = {SECONDLY: 7, BRIEF: 7, CROWD: 76, FLOW: 6}
    words = [f"{rule.name}={limit}/{least.get(rule, 0)}" for rule, limit in limits.items()]
    arguments = (hammered.url, somebody(), str(_SECONDS), *words)
    runs = await asyncio.gather(*(_hammer(*arguments) for _ in range(_PROCESSES)))
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
        apart = [later - earlier for earlier, later in zip(moments, moments[limit:], strict=False)]
        assert min(apart) >= rule.algorithm.per
    moments = admitted["flow"]
    assert len(moments) > 40
    for first, begun in enumerate(moments):
        for count, moment in enumerate(moments[first:], start=1):
            assert count <= 5 + (moment - begun + 1) / 50


async def _hammer(*words: str) -> dict[str, dict[str, list[int]]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.patterns.limit_hammer", *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    told: dict[str, dict[str, list[int]]] = json.loads(out)
    return told


async def test_checks_over_several_subjects_never_exceed_any_of_them(hammered: Valkey | Cluster) -> None:
    """Who races for a common claim beside an own one gets no more than there is, and loses none of his."""
    common = KINDS[0].at(_DAILY).on(somebody())
    async with AsyncExitStack() as opened:
        url = hammered.url
        limiters = [(await opened.enter_async_context(connect(url, CATALOGUE)))[LIMITS] for _ in range(4)]
        racers = [(limiter, KINDS[1].at(1000).on(somebody())) for limiter in limiters for _ in range(5)]
        admitted = await asyncio.gather(*(_race(limiter, own, common) for limiter, own in racers))
        assert sum(admitted) == _DAILY
        for (limiter, own), count in zip(racers, admitted, strict=True):
            assert (await limiter.peek(own)).remaining == 1000 - count


async def _race(limiter: Limiter, own: Claim, common: Claim) -> int:
    """Check until the common limit is used up, and return how often both were admitted."""
    admitted = 0
    while (await limiter.check(own, common)).allowed:
        admitted += 1
    return admitted
