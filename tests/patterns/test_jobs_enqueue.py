"""Enqueuing: delays, priorities, unique jobs and many at once, all held in SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, text, update

from ephemera import Catalogue, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue, UnknownJob
from ephemera.patterns.jobs import (
    BoundJobs,
    Enqueued,
    Jobs,
    Run,
    Unique,
    _enqueue,
    sql_engine,
)
from tests.patterns.job_store import attempt_by, delivered_by, message_lists, sent, waiting_messages

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")

CATALOGUE = Catalogue("test-enqueue")
JOBS = Jobs(CATALOGUE, "enqueue_checkpoint:{job_id}", queues=("enqueued",), name="enqueued")
HOUR = timedelta(hours=1)
T = JOBS.tables.jobs


@JOBS.job(queue="enqueued", priority=3)
async def send(run: Run, to: str, copies: int = 1) -> str:
    """An ordinary job."""
    return to * copies


@JOBS.job(queue="enqueued", unique=Unique())
async def export(run: Run, document: int, file_type: str = "pdf") -> None:
    """One at a time for the same arguments."""


@JOBS.job(queue="enqueued", unique=Unique(arguments=("user",), period=HOUR))
async def digest(run: Run, user: int, reason: str) -> None:
    """One an hour for a user."""


@pytest.fixture(params=["sql", "celery"])
async def jobs(
    server: Valkey, postgres: Postgres, key: str, request: pytest.FixtureRequest
) -> AsyncIterator[BoundJobs]:
    """Jobs without a worker, delivered in either way, and an empty queue."""
    engine = sql_engine(postgres.database(f"{request.param}_{key}"[:60]))
    resources = {JOBS: delivered_by(request.param, engine)}
    async with keyspace.connect(server.url, CATALOGUE, resources=resources) as store:
        await store[JOBS].create_tables()
        await store.call("UNLINK", *message_lists(JOBS, "enqueued"))
        yield store[JOBS]
    await engine.dispose()


async def change(jobs: BoundJobs, job_id: str, **values: Any) -> None:
    """Change a row, as time or a worker would."""
    async with jobs.engine.begin() as sql:
        await sql.execute(update(T).where(T.c.id == job_id).values(**values))


async def due_now(jobs: BoundJobs, job_id: str) -> None:
    """Let the time of a delayed job come."""
    await change(jobs, job_id, available_at=T.c.available_at - HOUR)


@pytest.mark.parametrize("options", [{"delay": HOUR}, {"at": datetime.now(UTC) + HOUR}])
async def test_a_delayed_job_gets_its_message_when_it_is_due(jobs: BoundJobs, options: Any) -> None:
    """Before that nothing sends or claims it; then it gets one message, however often the reaper looks."""
    job_id = await jobs.enqueue(send.options(**options), "anna")
    await jobs.publish(job_id)
    assert await sent(jobs, "enqueued") == 0
    assert await attempt_by(jobs).run(job_id) == "refused"
    await due_now(jobs, job_id)
    assert await sent(jobs, "enqueued") == 1
    assert await attempt_by(jobs).run(job_id) == "done"


async def test_a_delay_counts_from_the_databases_clock(jobs: BoundJobs) -> None:
    """`available_at` is the delay after the row was created."""
    row = await jobs.get(await jobs.enqueue(send.options(delay=HOUR), "anna"))
    assert abs(row.available_at - row.created_at - HOUR) < timedelta(seconds=1)
    assert row.published_at is None


async def test_a_delay_in_a_transaction_waits_for_both(jobs: BoundJobs) -> None:
    """It does not exist if the transaction is rolled back, and waits for its time if it commits."""
    async with jobs.engine.connect() as sql:
        lost = await jobs.enqueue_in(sql, send.options(delay=HOUR), "anna")
        await sql.rollback()
        kept = await jobs.enqueue_in(sql, send.options(delay=HOUR), "anna")
        await sql.commit()
    with pytest.raises(UnknownJob):
        await jobs.get(lost)
    assert await sent(jobs, "enqueued") == 0
    await due_now(jobs, kept)
    assert await sent(jobs, "enqueued") == 1


async def test_options_are_those_of_the_declaration_unless_given(jobs: BoundJobs) -> None:
    """The priority is the declared one or the given one; an id of one's own is used once."""
    assert (await jobs.get(await jobs.enqueue(send, "anna"))).priority == 3
    urgent = send.options(priority=9, job_id="welcome-7")
    assert await jobs.get_or_enqueue(urgent, "anna") == Enqueued("welcome-7", is_new=True)
    assert await jobs.get_or_enqueue(urgent, "anna") == Enqueued("welcome-7", is_new=False)
    assert (await jobs.get("welcome-7")).priority == 9
    with pytest.raises(InvalidValue, match="no other job has"):
        await jobs.enqueue(export.options(job_id="welcome-7"), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": timedelta(seconds=-1)}, "a delay from 0 to 3650 days"),
        ({"delay": timedelta.max}, "a delay from 0 to 3650 days"),
        ({"at": datetime(2030, 1, 1)}, "with a time zone"),
        ({"at": datetime.now(UTC), "delay": HOUR}, "both delay= and at="),
        ({"priority": 10**9}, "a priority from"),
        ({"job_id": ""}, "an id of 1 to 200"),
        ({"job_id": "a\0b"}, "the character NUL"),
        ({"unique": Unique(key="\ud800")}, "surrogates not allowed"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, message: str) -> None:
    """Each error names the kind and what to use."""
    with pytest.raises(InvalidValue, match=message):
        send.options(**options)


def test_options_add_to_those_before() -> None:
    """A moment replaces a delay, and whatever is not given stays."""
    moment = datetime.now(UTC)
    made = send.options(delay=HOUR, job_id="one").options(priority=5)
    assert (made.enqueue_options.delay, made.enqueue_options.job_id) == (HOUR, "one")
    assert (
        made.options(at=moment).enqueue_options
        == send.options(at=moment, priority=5, job_id="one").enqueue_options
    )
    assert send.enqueue_options.delay is None


def test_uniqueness_that_cannot_work_is_refused() -> None:
    """A key and arguments, an unknown argument, and an empty period."""
    with pytest.raises(InvalidDeclaration, match="give one of them"):
        Unique(key="a", arguments=("b",))
    with pytest.raises(InvalidDeclaration, match="it is unique by copys; its arguments are to, copies"):
        send.options(unique=Unique(arguments=("copys",)))
    with pytest.raises(InvalidDeclaration, match="above 0"):
        Unique(period=timedelta(0))


async def test_a_unique_job_is_enqueued_once_while_it_is_open(jobs: BoundJobs) -> None:
    """The same arguments, defaults included, give the open job; after its end they give a new one."""
    first = await jobs.get_or_enqueue(export, 7)
    assert first.is_new
    assert await jobs.get_or_enqueue(export, 7, file_type="pdf") == Enqueued(first.id, is_new=False)
    assert (await jobs.get_or_enqueue(export, 8)).is_new
    assert await waiting_messages(jobs, "enqueued") == 2, "and no message for the one that existed"
    assert await attempt_by(jobs).run(first.id) == "done"
    second = await jobs.get_or_enqueue(export, 7)
    assert second.is_new
    assert second.id != first.id


async def test_a_unique_job_with_a_period_is_the_only_one_until_that_is_over(jobs: BoundJobs) -> None:
    """It is, even if it has ended; and also after the period while it is open."""
    first = await jobs.enqueue(digest, 1, "weekly")
    assert await jobs.enqueue(digest, 1, "other") == first
    await change(jobs, first, unique_until=T.c.unique_until - HOUR)
    assert await jobs.enqueue(digest, 1, "weekly") == first, "it is still open"
    assert await attempt_by(jobs).run(first) == "done"
    second = await jobs.enqueue(digest, 1, "weekly")
    assert second != first
    assert await attempt_by(jobs).run(second) == "done"
    assert await jobs.enqueue(digest, 1, "weekly") == second, "within the period"


async def test_one_of_many_concurrent_enqueues_wins(jobs: BoundJobs, server: Valkey) -> None:
    """Twenty processes' worth of connections get one id, and one of them is new."""
    keyed = send.options(unique=Unique(key="welcome"))
    done = await asyncio.gather(*(jobs.get_or_enqueue(keyed, f"{n}") for n in range(20)))
    assert len({each.id for each in done}) == 1
    assert sum(each.is_new for each in done) == 1
    async with jobs.engine.connect() as sql:
        assert len((await sql.execute(select(T.c.id))).all()) == 1


async def test_a_transaction_waits_for_another_with_the_same_key(jobs: BoundJobs) -> None:
    """The second gets the first one's job if that commits, and its own if that is rolled back."""
    blocked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    for document, commits in ((1, True), (2, False)):
        async with jobs.engine.connect() as one, jobs.engine.connect() as other:
            first = await jobs.enqueue_in(one, export, document)
            second = asyncio.create_task(jobs.enqueue_in(other, export, document))
            while not (await one.execute(blocked)).scalar_one():
                assert not second.done()
            await (one.commit() if commits else one.rollback())
            assert (await second == first) is commits
            await other.commit()


async def test_a_retry_does_not_make_a_unique_job_run_twice(jobs: BoundJobs) -> None:
    """A cancelled job cannot continue while a new one has its key."""
    first = await jobs.enqueue(export, 7)
    await jobs.cancel(first)
    second = await jobs.enqueue(export, 7)
    with pytest.raises(UnknownJob, match="same unique key is open"):
        await jobs.retry(first)
    await jobs.cancel(second)
    assert (await jobs.retry(first)).state == "waiting"
    assert await jobs.enqueue(export, 7) == first


async def test_many_jobs_are_enqueued_in_order_and_at_once(jobs: BoundJobs) -> None:
    """Each has its row and one message; equal unique ones share a job, within a call and across calls."""
    done = await jobs.enqueue_many(send.options(priority=1), ({"to": f"{n}"} for n in range(1200)))
    assert all(each.is_new for each in done)
    assert await waiting_messages(jobs, "enqueued") == 1200
    assert await sent(jobs, "enqueued") == 1200
    row = await jobs.get(done[1199].id)
    assert (row.arguments, row.priority) == ({"to": "1199"}, 1)
    assert await attempt_by(jobs).run(done[0].id) == "done"
    unique = await jobs.enqueue_many(export, [{"document": n} for n in (1, 2, 1)])
    assert [each.is_new for each in unique] == [True, True, False]
    assert unique[2].id == unique[0].id
    assert [each.is_new for each in await jobs.enqueue_many(export, [{"document": 2}])] == [False]
    assert await jobs.enqueue_many(send, []) == []


async def test_many_jobs_are_all_or_none(jobs: BoundJobs) -> None:
    """Arguments that cannot run refuse all of them, and a transaction that is rolled back leaves none."""
    with pytest.raises(InvalidValue, match="missing a required argument: 'to'"):
        await jobs.enqueue_many(send, [{"to": "anna"}, {}])
    async with jobs.engine.connect() as sql:
        await jobs.enqueue_many(send, [{"to": "anna"}] * 3, sql=sql)
        await sql.rollback()
    assert await jobs.find() == []
    with pytest.raises(InvalidValue, match="cannot all have one id"):
        await jobs.enqueue_many(send.options(job_id="one"), [{"to": "anna"}])


async def test_large_bulks_of_the_same_unique_jobs_do_not_deadlock(
    jobs: BoundJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order of their arguments, two enqueue the same jobs; one of them waits, none fails."""
    monkeypatch.setattr(_enqueue, "MAX_BATCH", 1)  # rather than 10,000 rows in a statement
    once = send.options(unique=Unique())
    arguments = [{"to": f"{number}"} for number in range(100)]
    done = await asyncio.gather(jobs.enqueue_many(once, arguments), jobs.enqueue_many(once, arguments[::-1]))
    assert [each.id for each in done[0]] == [each.id for each in reversed(done[1])]
    assert sum(each.is_new for many in done for each in many) == 100


async def test_bulks_that_take_over_the_same_keys_do_not_deadlock(jobs: BoundJobs) -> None:
    """The keys of ended jobs are freed in one order, whatever the order of their rows."""
    once, arguments = send.options(unique=Unique(period=HOUR)), [{"to": "one"}, {"to": "two"}]
    rows = [await jobs.get(each.id) for each in await jobs.enqueue_many(once, arguments)]
    low, high = [row.id for row in sorted(rows, key=lambda row: str(row.unique_key))]
    over = {"state": "done", "unique_until": text("clock_timestamp() - interval '1 s'")}
    for job_id in (high, low):  # their rows are stored in this order
        async with jobs.engine.begin() as sql:
            await sql.execute(update(T).where(T.c.id == job_id).values(**over))

    def locked(job_id: str) -> Any:
        return select(T.c.id).where(T.c.id == job_id).with_for_update(skip_locked=True)

    waits = text(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with jobs.engine.begin() as sql, jobs.engine.connect() as other:
        assert (await sql.execute(locked(high))).all()
        again = asyncio.create_task(jobs.enqueue_many(once, arguments))
        while not (await other.execute(waits)).all():
            await other.rollback()
            await asyncio.sleep(0.02)
        assert not (await other.execute(locked(low))).all()
        await other.rollback()
    assert [each.is_new for each in await again] == [True, True]
