"""Unnoticed 8: a filled cache has no claim left, and a process takes no job while a lost thread runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from ephemera import Cache, Catalogue, LocalCache, Store, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.jobs import Retry, Run
from tests.patterns.job_fixtures import JOBS
from tests.patterns.job_store import attempt_by
from tests.patterns.job_store import opened as opened_jobs
from tests.patterns.session_fixtures import all_keys
from tests.wire.conditions import eventually

catalogue = Catalogue("unnoticed8")
PLAIN: Cache[str] = Cache(
    catalogue,
    "unnoticed8:plain:{id}",
    str,
    fresh=timedelta(minutes=5),
    stale=timedelta(minutes=5),
    purpose="x",
)
NEAR: Cache[str] = Cache(
    catalogue, "unnoticed8:near:{id}", str, fresh=timedelta(minutes=5), local=LocalCache(), purpose="x"
)
CLAIMS = b"loading:"


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store of caches."""
    async with connect(server.url, catalogue) as opened:
        yield opened


async def claims(store: Store) -> list[bytes]:
    """The claims of loads."""
    return [key async for key in all_keys(store) if b"unnoticed8" in key and CLAIMS in key]


@pytest.mark.parametrize("cache", [PLAIN, NEAR], ids=["plain", "near"])
async def test_unnoticed8_a_load_leaves_no_claim(store: Store, cache: Cache[str]) -> None:
    """After a value, after no value, after a put and after an invalidation the claim is gone."""
    seen: list[list[bytes]] = []

    async def load(id: int) -> str | None:  # noqa: A002 - the key's field
        seen.append(await claims(store))
        return "value" if len(seen) != 2 else None

    for number in (1, 2):
        await store[cache].get_or_load(load, id=number)
        assert await claims(store) == []
    assert [len(each) for each in seen] == [1, 1], "while it loads there is a claim"
    await store[cache].put("other", id=1)
    assert await claims(store) == []
    await store[cache].delete(id=1)
    async with asyncio.timeout(2):  # far less than the lease of a claim
        assert await store[cache].get_or_load(load, id=1) == "value"
    assert await claims(store) == []


async def test_unnoticed8_a_failed_load_leaves_no_claim(store: Store) -> None:
    """Without an entry to serve, the next caller may load at once."""

    async def fail(id: int) -> str:  # noqa: A002
        raise ValueError("the source is broken")

    async def load(id: int) -> str:  # noqa: A002
        return "value"

    with pytest.raises(ValueError, match="broken"):
        await store[PLAIN].get_or_load(fail, id=3)
    assert await claims(store) == []
    async with asyncio.timeout(2):
        assert await store[PLAIN].get_or_load(load, id=3) == "value"


RELEASED = threading.Event()
STARTED = threading.Event()


@JOBS.job(queue="export", retry=Retry(attempts=2), time_limit=timedelta(milliseconds=400))
async def blocked(run: Run) -> str:
    """Run a step in a thread, which nothing can stop."""

    def wait() -> bool:
        STARTED.set()
        return RELEASED.wait(20)

    await run.step("wait", wait)
    return "done"


async def test_unnoticed8_no_next_job_while_a_lost_thread_runs(server: Valkey, postgres: Postgres) -> None:
    """An attempt that ran out of time ends for its process only when its thread has ended."""
    RELEASED.clear()
    async with opened_jobs(server.url, postgres.database("unnoticed8")) as jobs:
        job_id = await jobs.enqueue(blocked)
        attempt = asyncio.create_task(attempt_by(jobs).run(job_id))
        try:
            await eventually(STARTED.is_set)
            await asyncio.sleep(0.8)  # twice its limit: by now the attempt is over
            assert not attempt.done()
        finally:
            RELEASED.set()
        assert await asyncio.wait_for(attempt, 5) == "rescheduled"
