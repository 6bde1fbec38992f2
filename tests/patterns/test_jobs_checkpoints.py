"""Checkpoints: fenced named bytes, on Valkey, Redis 7 and a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ephemera import Store, keyspace
from ephemera.embedded import Cluster, Postgres
from ephemera.errors import InvalidDeclaration, InvalidValue, JobLost
from ephemera.patterns.jobs import CeleryDelivery, Checkpoint, sql_engine
from ephemera.patterns.jobs._checkpoint import Checkpoints
from tests.patterns.job_fixtures import CATALOGUE, JOBS, PROGRESS, Stepped

HOUR = 3_600_000


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the tests' jobs."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


def held(store: Store, key: str, fence: int) -> Checkpoint:
    """The checkpoint of a job, for the worker with this fence."""
    return Checkpoints(JOBS.checkpoints, PROGRESS, store, "jobs:finished").open(key, fence, f"worker-{fence}")


async def published(store: Store, key: str) -> list[Stepped]:
    """The progress events of a job."""
    stored = await store.call("XRANGE", PROGRESS.key(job_id=key), "-", "+")
    return [event for _, fields in stored if isinstance(event := PROGRESS.decode(fields[1]), Stepped)]


async def test_the_next_worker_gets_what_was_saved(store: Store, key: str) -> None:
    """Fields are added, replaced and removed; the next worker gets the result."""
    first = held(store, key, 1)
    assert await first._begin() == {}
    await first.save({"outline": b"\x00one", "graph": b"two"})
    await first.save({"graph": b"three"}, remove=["outline"])
    assert await held(store, key, 2)._begin() == {"graph": b"three"}
    assert await held(store, key, 2).load("graph", "outline") == {"graph": b"three"}
    assert await held(store, key, 2).load() == {"graph": b"three"}


async def test_a_late_worker_changes_nothing(store: Store, key: str) -> None:
    """Once a later worker has begun, the older one can neither save, publish, begin nor end."""
    old, new = held(store, key, 1), held(store, key, 2)
    await old._begin()
    await old.save({"by": b"old"}, event=Stepped(1))
    await new._begin()
    for late in (
        old.save({"by": b"old, late"}),
        old.save({}, event=Stepped(2)),
        old.save({}, remove=["by"]),
        old._begin(),
        old._end(),
    ):
        with pytest.raises(JobLost, match=r"\(fence 1\) .* carries the later fence 2"):
            await late
    assert await new.load() == {"by": b"old"}
    assert await published(store, key) == [Stepped(1)]


async def test_an_ended_job_leaves_only_its_fence(store: Store, key: str) -> None:
    """The fields are deleted, and a late worker is refused for the checkpoint's lifetime."""
    old, new = held(store, key, 1), held(store, key, 2)
    await old.save({"by": b"old"})
    await new._begin()
    await new._end(event=Stepped(9))
    assert await new.load() == {}
    with pytest.raises(JobLost):
        await old.save({"by": b"old"}, event=Stepped(1))
    assert await published(store, key) == [Stepped(9)]
    assert HOUR - 60_000 < await store.call("PTTL", JOBS.checkpoints.key(job_id=key)) <= HOUR


async def test_each_save_renews_the_lifetime(store: Store, key: str) -> None:
    """Every save sets the checkpoint's TTL to an hour."""
    mine, name = held(store, key, 1), JOBS.checkpoints.key(job_id=key)
    for change in (mine._begin, lambda: mine.save({"a": b"1"}), lambda: mine.save({}, event=Stepped(1))):
        await change()
        assert HOUR - 60_000 < await store.call("PTTL", name) <= HOUR
        await store.call("PEXPIRE", name, 5000)


async def test_a_lost_checkpoint_is_created_again(store: Store, key: str) -> None:
    """A worker whose checkpoint was lost can save again, and its fence counts again."""
    mine = held(store, key, 3)
    await mine.save({"a": b"1"})
    await store.call("UNLINK", JOBS.checkpoints.key(job_id=key))
    await mine.save({"b": b"2"})
    assert await mine.load() == {"b": b"2"}
    with pytest.raises(JobLost):
        await held(store, key, 2).save({"c": b"3"})


async def test_a_checkpoint_wakes_listeners(store: Store, key: str) -> None:
    """The same script publishes the event, and listeners of the progress are woken."""
    async with store.client("queue").subscribe(PROGRESS.wake.key()) as messages:
        await held(store, key, 1).save({"a": b"1"}, event=Stepped(1))
        async with asyncio.timeout(60):
            while (await anext(messages)).data != PROGRESS.key(job_id=key).encode():
                pass


async def test_internal_field_names_are_refused(store: Store, key: str) -> None:
    """A job can neither set nor remove the fence."""
    mine = held(store, key, 1)
    for refused in (mine.save({"_fence": b"9"}), mine.save({}, remove=["_fence"])):
        with pytest.raises(InvalidValue, match="do not begin with _"):
            await refused


async def test_celery_queues_on_a_cluster_are_refused(cluster: Cluster, postgres: Postgres) -> None:
    """Jobs whose queues would be on a cluster are refused with the reason, unless SQL delivers them."""
    engine = sql_engine(postgres.url)
    async with keyspace.connect(cluster.url, CATALOGUE, resources={JOBS: engine}) as store:
        assert store[JOBS].declaration is JOBS
    delivery = CeleryDelivery(engine)
    async with keyspace.connect(cluster.url, CATALOGUE, resources={JOBS: delivery}) as store:
        with pytest.raises(InvalidDeclaration, match="kombu has no transport for one"):
            store[JOBS]
