"""What the fault campaign has found, each as a test of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import insert, select

from ephemera import Store, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import ServerError
from ephemera.keyspace import SERVER_IDENTITY
from ephemera.patterns.jobs import Run
from ephemera.patterns.jobs._checkpoint import Checkpoints
from ephemera.patterns.progress import Missed, Snapshot
from ephemera_services.runtime import Secret
from ephemera_services.runtime import open_resources as opened_system
from ephemera_services.scripture import Settings, UserCreated
from ephemera_services.scripture.app import service_definition
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.service import open_scripture
from ephemera_services.scripture.tables import users
from tests.chaos.campaign.proxy import Network
from tests.patterns.job_fixtures import CATALOGUE, JOBS, PROGRESS, Ended, Stepped, generate
from tests.patterns.job_store import lapse, opened, resumed
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended
from tests.services.feed_fixtures import feed_fixtures


@asynccontextmanager
async def _full(server: Valkey) -> AsyncIterator[None]:
    """Have a server refuse writes within a block."""
    server.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        yield
    finally:
        server.ask("CONFIG", "SET", "maxmemory", 0)


async def _received(store: Store, job_id: str) -> list[Any]:
    """Return what a listener gets from the beginning: numbers, "missed", "ended"."""

    async def snapshot(job_id: str) -> Snapshot:
        return Snapshot("by SQL")

    received: list[Any] = []
    async with store[PROGRESS].listen(job_id=job_id, snapshot=snapshot) as updates, asyncio.timeout(60):
        async for update in updates:
            if isinstance(update, Missed):
                received.append("missed")
            elif isinstance(update.event, Stepped):
                received.append(update.event.number)
            else:
                received.append("ended")
    return received


async def test_an_event_that_redis_refused_is_reported_as_missed(victim: Valkey) -> None:
    """A follower of a job gets a notice where the server refused events, even before the end."""
    async with connect(victim.url, CATALOGUE) as store:
        checkpoints = Checkpoints(JOBS.checkpoints, PROGRESS, store, "jobs:finished")
        checkpoint = checkpoints.open("job", 1, "worker")
        await checkpoint.save({}, event=Stepped(1))
        async with _full(victim):
            with pytest.raises(ServerError):
                await checkpoint.save({}, event=Stepped(2))
        await checkpoint.save({}, event=Stepped(3))
        await checkpoint.save({}, event=Stepped(4))
        async with _full(victim):
            with pytest.raises(ServerError):
                await checkpoint.save({}, event=Stepped(5))
        await checkpoints.open("job", 1, "worker")._end(event=Ended("done"))
        assert await _received(store, "job") == [1, "missed", 3, 4, "missed", "ended"]


async def test_a_worker_that_takes_over_reports_missing_events(victim: Valkey, postgres: Postgres) -> None:
    """Steps of a worker that died while the server refused events are in SQL: its successor reports it."""
    sql = postgres.database("faults_unpublished")
    async with opened(victim.url, sql) as first, opened(victim.url, sql) as second:
        job_id = await first.enqueue(generate, 1)
        run = await _claimed(first, job_id)
        await _step(run, 1)
        async with _full(victim):
            await _step(run, 2)
            await _step(run, 3)
        await lapse(first, job_id)  # rather than wait for its lease
        run = await _claimed(second, job_id)
        for number in (1, 2, 3, 4):
            await _step(run, number)
        await run.checkpoint._end(event=Ended("done"))
        assert await _received(second.store, job_id) == [1, "missed", 3, 4, "ended"]


async def _claimed(live: Any, job_id: str) -> Run:
    row = await live._backend.rows.claim(job_id, "worker", timedelta(seconds=30))
    assert row is not None
    return await resumed(live, row)


async def _step(run: Run, number: int) -> None:
    await run.step(f"step:{number}", _work, event=Stepped(number))


async def _work() -> None:
    """Nothing but what is recorded of it."""


async def test_an_event_that_is_published_twice_has_its_effect_once(
    victim: Valkey, postgres: Postgres
) -> None:
    """Redis gets an event and its answer is lost, so the outbox repeats it: history has it once."""
    database = postgres.database("faults_outbox")
    victim.ask("SET", SERVER_IDENTITY.key(), "scripture")
    with Network() as network:
        line = network.proxy(victim.port)
        settings = Settings(
            url=Secret(f"redis://:{victim.password}@127.0.0.1:{line.port}"),
            database_url=Secret(database),
            consumers=True,
        )
        async with (
            opened_system(settings, service_definition(settings)) as resources,
            open_scripture(settings, resources),
        ):
            user, outbox = uuid4(), Outbox(resources.engine, resources.store)
            async with resources.engine.begin() as sql:
                row = {"id": user, "email": f"{user}@example.com", "name": "Ann", "plan": "free"}
                await sql.execute(insert(users).values(row))
                number = await outbox.add(sql, UserCreated(str(user)))
            network.trouble(line, "half-open")
            assert not await outbox.publish(number), "it is unknown whether Redis got it"
            network.heal(line)
            await _handled(victim, "gl:events:users", times=2)
    with psycopg.connect(database) as checking:
        found = checking.execute("SELECT what FROM scripture.user_history WHERE user_id = %s", (str(user),))
        assert found.fetchall() == [("created",)]


async def test_an_event_that_died_with_its_master_is_published_again(
    victim: Valkey, postgres: Postgres
) -> None:
    """What Redis acknowledged and then lost is in SQL for a minute, and is published to the next master."""
    victim.ask("SET", SERVER_IDENTITY.key(), "scripture")
    database = postgres.database("faults_lost_event")
    settings = Settings(url=Secret(victim.url), database_url=Secret(database))
    async with opened_system(settings, service_definition(settings)) as resources:
        outbox = Outbox(resources.engine, resources.store)
        async with outbox.relay():
            async with resources.engine.begin() as sql:
                number = await outbox.add(sql, UserCreated(str(uuid4())))
            assert await outbox.publish(number)
            victim.kill()
            victim.restart()  # with nothing
            victim.ask("SET", SERVER_IDENTITY.key(), "scripture")
            async with asyncio.timeout(60):
                while not victim.ask("XLEN", "gl:events:users"):
                    await asyncio.sleep(0.1)


async def _handled(server: Valkey, stream: str, times: int) -> None:
    """Wait until this many were published at least, and every group has handled all of them."""
    async with asyncio.timeout(60):
        while True:
            stream_info: Any = server.ask("XINFO", "STREAM", stream)
            groups: Any = server.ask("XINFO", "GROUPS", stream)
            # Not its length: handled entries are trimmed.
            info = dict(zip(stream_info[::2], stream_info[1::2], strict=True))
            # Only a group's position tells what it has read: it counts nothing before its first entry.
            states = [dict(zip(group[::2], group[1::2], strict=True)) for group in groups]
            last = info["last-generated-id"]
            if info["entries-added"] >= times and all(
                state["last-delivered-id"] == last and state["pending"] == 0 for state in states
            ):
                return
            await asyncio.sleep(0.1)


async def test_a_worker_outlives_a_server_that_refuses(victim: Valkey, postgres: Postgres) -> None:
    """A demoted or full server answers a worker's commands with errors, and the worker continues."""
    sql = postgres.database("faults_refused")
    async with opened(victim.url, sql, delivery="celery") as jobs:
        with Worker(victim.url, sql, delivery="celery") as worker:
            assert (await ended(jobs, await jobs.enqueue(generate, 1))).state == "done"
            victim.ask("REPLICAOF", "127.0.0.1", "1")
            await _answered(victim, "UNBLOCKED", "READONLY")
            victim.ask("REPLICAOF", "NO", "ONE")
            assert (await ended(jobs, await jobs.enqueue(generate, 1), within=60)).state == "done"
            async with _full(victim):
                await _answered(victim, "OOM")
            assert (await ended(jobs, await jobs.enqueue(generate, 1), within=60)).state == "done"
            assert worker.stop() == 0


async def _answered(server: Valkey, *errors: str) -> None:
    """Wait until the server has answered with one of these errors."""
    async with asyncio.timeout(60):
        while not any(f"errorstat_{error}:" in str(server.ask("INFO", "errorstats")) for error in errors):
            await asyncio.sleep(0.05)


class _Lost(Exception):
    """The error that ends a run early."""


async def test_a_failed_run_frees_its_user(victim: Valkey, postgres: Postgres) -> None:
    """The row of a user whose run failed is free: after its rest the next run waits for no deadline."""
    places = {"EPHEMERA_URL": victim.url, "EPHEMERA_DATABASE_URL": postgres.database("faults_given_up")}
    async with feed_fixtures(places, pro_novelty=1) as world:
        await world.aggregator.subscribe("ann", "news", "pro")
        await world.publish("news", 3)
        await world.tick()

        async def fails(_: Any) -> Any:
            (running,) = await world.sql(select(world.tables.user_stats.c.running_until))
            assert running[0] is not None
            raise _Lost

        with pytest.raises(_Lost):
            await world.planner.rebuild("ann", fails)
        row = await world.row("ann")
        assert (row.running_until, row.enqueued_until) == (None, None)
        await world.age("ann", last_enqueued_at="31 s", retry_at="1 s", recheck_at="1 s")
        assert (await world.rebuild("ann")).outcome == "rebuilt"
