"""The league in 25 MB: everything of 5,000 users fits, nothing is evicted, and beyond that nothing breaks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ephemera import connect, embedded
from ephemera.embedded import Valkey
from ephemera.patterns.http_cache._resource import build_page
from ephemera_services.league import catalogue, keys
from ephemera_services.league.keys import RESOURCES, SESSIONS, Session, Vote
from ephemera_services.league.monitor import Pages, RedisFigures, advise
from tests.services.league_users import league, referee, until

USERS = 5000
BUDGET = 25 * 1024 * 1024
MATCHES = 60


def _limited(limit: int) -> Valkey:
    """A server with so much memory, as the smallest plans have it; what has no TTL is not evicted."""
    return embedded.valkey(config={"maxmemory": str(limit), "maxmemory-policy": "volatile-lru"})


def test_five_thousand_users_fit() -> None:
    """Sessions, pages and votes of 5,000 users and a whole season take less than 25 MB; none is evicted."""
    with _limited(BUDGET) as server:
        asyncio.run(_have_voted(server.url))
        info = asyncio.run(_fill(server.url))
    assert info["evicted_keys"] == 0
    assert info["used_memory"] < BUDGET


def test_what_does_not_fit_is_evicted_and_votes_are_not() -> None:
    """In a fifth of that pages are evicted, and every vote that waits for SQL is still there."""
    with _limited(BUDGET // 5) as server:
        info = asyncio.run(_fill(server.url, votes=2000))
    assert info["evicted_keys"] > 0
    assert info["used_memory"] <= 1.1 * BUDGET / 5
    assert info["votes"] == 2000


async def _have_voted(url: str) -> None:
    """Remember votes that are in SQL, as long as their matches may take others: of every user twenty."""
    flags = keys.VOTES.shards.idempotency
    async with connect(url, catalogue) as store:
        for match in range(20):
            shard = keys.VOTES.shards.of(str(match))
            names = (f"{number}.{match}" for number in range(USERS))
            await asyncio.gather(*(store[flags].set(shard=shard, idempotency_key=name) for name in names))


async def _fill(url: str, votes: int = 0) -> dict[str, int]:
    """Have every user sign in and look at their predictions, and every match looked at."""
    async with connect(url, catalogue) as store:
        ballots = [Vote(number, number % MATCHES + 1, "home") for number in range(votes)]
        for ballot in ballots:
            await store[keys.VOTES].append(ballot, partition_key=str(ballot.match_id))
        for first in range(0, USERS, 500):
            ids = [str(number) for number in range(first, first + 500)]
            create = store[SESSIONS].create
            await asyncio.gather(*(create(Session(each, f"user {each}", "user")) for each in ids))
            await asyncio.gather(*(_keep(store, keys.MINE, _predictions(), user_id=each) for each in ids))
        for number in range(1, MATCHES + 1):
            for page in (keys.META, keys.LIVE, keys.VERSIONS):
                await _keep(store, page, {"events": ["x" * 50] * 20}, match_id=str(number))
            await _keep(
                store, keys.COMMENTS, [{"text": f"{n} comment" * 5} for n in range(120)], match_id=str(number)
            )
        waiting = await store[keys.VOTES].backlog()
        found = (await store.call("INFO")).decode()
    lines = dict(line.split(":", 1) for line in found.splitlines() if ":" in line)
    return {"votes": waiting, **{name: int(lines[name]) for name in ("evicted_keys", "used_memory")}}


def _predictions() -> list[dict[str, Any]]:
    """As many as a user places in a season."""
    return [
        {"id": number, "home": "Comet", "away": "Vortex", "kickoff": f"2026-11-{number:02d}T12:00:00Z"}
        for number in range(1, 29)
    ]


async def _keep(store: Any, resource: Any, value: Any, **fields: str) -> None:
    page = build_page(
        resource.at(**fields).key,
        value,
        "application/json",
        compress_over=resource.representation.compress_over,
        made_at=0,
    )
    page.fresh, page.stale = 300_000, 120_000
    await store[resource.cache].put(page, **fields)


def test_its_own_valkey_keeps_to_the_budget(tmp_path: Path, places: dict[str, str]) -> None:
    """With EPHEMERA_LEAGUE_REDIS_MEGABYTES the embedded server has that limit, and says so."""
    own = {name: value for name, value in places.items() if name != "EPHEMERA_URL"}
    with league(tmp_path, own, EPHEMERA_LEAGUE_REDIS_MEGABYTES="25") as served:
        served.client.get("/api/league/table").raise_for_status()
        with referee(served) as admin:
            redis = admin.get("/api/admin/monitoring").json()["redis"]
    assert redis["max_memory"] == BUDGET
    assert redis["evicted_keys"] == 0


def test_a_larger_server_than_the_budget_is_logged(tmp_path: Path, places: dict[str, str]) -> None:
    """A server that is not ours is left alone, and the log says that it has no such limit."""
    with league(tmp_path, places, EPHEMERA_LEAGUE_REDIS_MEGABYTES="25") as served:
        assert until(lambda: any("more than the budget" in line["message"] for line in served.lines()))


def test_copies_in_a_process_have_a_budget() -> None:
    """All copies of all pages together take at most 10 MB of a process."""
    budgets = [resource.cache.local for resource in RESOURCES]
    assert sum(budget.max_bytes for budget in budgets if budget is not None) <= 10 * 1024 * 1024
    assert all(budget is not None for budget in budgets)


@pytest.mark.parametrize(
    ("pages", "p95", "evicted", "said"),
    [
        (Pages(850, 150, 0.85), 1000.0, 0, []),
        (Pages(849, 151, 0.849), 1000.0, 0, ["upgrade Redis: 85% of page"]),
        (Pages(1000, 0, 1.0), 1000.1, 0, ["upgrade the machine"]),
        (Pages(1000, 0, 1.0), 1.0, 1, ["upgrade Redis: it has evicted 1 keys"]),
        (Pages(1, 2, 0.33), 1.0, 0, []),
    ],
)
def test_advice_begins_where_the_design_says(pages: Pages, p95: float, evicted: int, said: list[str]) -> None:
    """Below 85 % of hits, above 0 evictions or above 1 s at p95 an upgrade is advised, and not before."""
    redis = RedisFigures(0.5, evicted, 1, 1, 1)
    advice = list(advise(pages, 1000, p95, redis))
    assert len(advice) == len(said)
    assert all(found.startswith(wanted) for found, wanted in zip(advice, said, strict=True))


def test_without_redis_that_is_the_advice() -> None:
    """An unavailable Redis is reported."""
    assert "Redis is down" in next(advise(Pages(1, 0, 1.0), 1, 1.0, None))
