"""Every pattern in synchronous code, with synchronous loaders and handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from queue import Queue

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

from ephemera import StoreClosed, sync
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.events import Delivery
from ephemera.patterns.jobs import sql_engine
from ephemera.patterns.planner import Dataset, Task
from ephemera.patterns.progress import Missed, Snapshot
from ephemera.patterns.write_behind import CounterTable, create_tables
from ephemera.sync import SyncStore
from tests.sync.shop import (
    CATALOGUE,
    EVENTS,
    FANOUT,
    FEED,
    JOBS,
    LIMITS,
    LOOK,
    MATCHES,
    METADATA,
    PLANS,
    PROFILES,
    PROGRESS,
    REVOKED,
    SESSIONS,
    SIGN_INS,
    SITE,
    SOURCE,
    TABLE,
    USAGE,
    USAGE_TABLE,
    VIEWS,
    VOTES,
    Account,
    Done,
    Step,
    double,
)


@pytest.fixture
def store(server: Valkey) -> Iterator[SyncStore]:
    """A synchronous store on the shared server."""
    with sync.connect(server.url, CATALOGUE, resources={SITE: SOURCE, MATCHES: SOURCE}) as opened:
        yield opened


@pytest.fixture
def database(postgres: Postgres) -> AsyncEngine:
    """An engine that keeps no connections, so that no loop has to close them."""
    return sql_engine(postgres.url, poolclass=NullPool)


def test_sessions(store: SyncStore, key: str) -> None:
    """Sign in, read, list and sign out."""
    token = store[SESSIONS].create(Account(key))
    assert store[SESSIONS].get(token) == Account(key)
    assert [listed.session for listed in store[SESSIONS].of_user(key)] == [Account(key)]
    assert store[SESSIONS].end_all(key) == 1
    assert store[SESSIONS].get(token) is None


def test_a_cache_loads_in_the_calling_thread(store: SyncStore, key: str) -> None:
    """A loader finds the thread-local state of its caller, may call the store, and runs once."""
    loads: list[int] = []

    def load(user_id: str) -> Account:
        loads.append(threading.get_ident())
        store.call("PING")
        return Account(user_id)

    assert [store[PROFILES].get_or_load(load, user_id=key) for _ in range(3)] == [Account(key)] * 3
    assert loads == [threading.get_ident()]


def test_a_loader_that_fails(store: SyncStore, key: str) -> None:
    """Its error reaches the caller; an async loader is accepted, too."""

    def broken(user_id: str) -> Account:
        raise LookupError(user_id)

    with pytest.raises(LookupError, match=key):
        store[PROFILES].get_or_load(broken, user_id=key)

    async def load(user_id: str) -> Account:
        return Account(user_id)

    assert store[PLANS].get(load, user_id=key) == Account(key)  # type: ignore[arg-type]


def test_threads_share_one_load(store: SyncStore, key: str) -> None:
    """The threads that miss at the same moment wait for the one that loads."""
    loads, meeting = [], threading.Barrier(4)

    def load(user_id: str) -> Account:
        loads.append(user_id)
        return Account(user_id)

    def ask() -> None:
        meeting.wait()
        assert store[PROFILES].get_or_load(load, user_id=key) == Account(key)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [key]


def test_entitlements_and_preferences(store: SyncStore, key: str) -> None:
    """Values read through from a loader, and settings with defaults."""
    assert store[PLANS].get(lambda user_id: Account(user_id), user_id=key) == Account(key)
    store[PLANS].invalidate(user_id=key)
    assert store[LOOK].get(user_id=key) == Account()
    assert store[LOOK].merge({"theme": "dark"}, user_id=key).theme == "dark"


def test_rate_limits(store: SyncStore, key: str) -> None:
    """Checks, and a reservation for a `with` block."""
    assert store[LIMITS].check(SIGN_INS.on(key)).allowed
    with store[LIMITS].reserve(SIGN_INS.on(key), cost=2) as reservation:
        assert reservation.allowed
        reservation.settle(1)
    assert store[LIMITS].peek(SIGN_INS.on(key)).remaining == 1


def test_events_are_handled_in_threads(store: SyncStore, key: str) -> None:
    """A consumer runs for a `with` block; its handler is a plain function that may call the store."""
    handled: Queue[tuple[str, int]] = Queue()

    def handle(event: Account, delivery: Delivery) -> None:
        store.call("PING")
        handled.put((event.user_id, delivery.attempt))

    store[EVENTS].publish_many([Account("a"), Account("b")], name=key)
    with store[EVENTS].consume("mail", handle, name=key) as consumer:
        assert {handled.get(timeout=60), handled.get(timeout=60)} == {("a", 1), ("b", 1)}
        assert not consumer.paused
    assert store[EVENTS].info(name=key).groups[0].name == "mail"


def test_progress_is_an_iterator(store: SyncStore, key: str) -> None:
    """A listener gets every event and ends after the last one."""
    store[PROGRESS].append(Step(1), job_id=key)
    seen: list[object] = []

    def snapshot(job_id: str) -> Snapshot:
        return Snapshot({"job": job_id}, ended=False)

    with store[PROGRESS].listen(snapshot=snapshot, job_id=key) as updates:
        for update in updates:
            assert not isinstance(update, Missed)
            seen.append(update.event)
            if update.event == Step(1):
                store[PROGRESS].append(Done(), job_id=key)
    assert seen == [Step(1), Done()]


def test_a_snapshot_is_loaded_where_the_iterator_waits_elsewhere(store: SyncStore, key: str) -> None:
    """`listen` has returned when the snapshot is needed, so a thread of the pool loads it."""

    def snapshot(job_id: str) -> Snapshot:
        return Snapshot(threading.current_thread().name, ended=True)

    with store[PROGRESS].listen(snapshot=snapshot, job_id=key) as updates:
        [update] = list(updates)
    assert isinstance(update, Missed)
    assert str(update.snapshot.state).startswith("ephemera-callback")


def test_fanout(store: SyncStore, key: str) -> None:
    """A connection is a `with` block and an iterator."""
    with store[FANOUT].connect(user_id=key) as connection:
        assert store[FANOUT].push(Account(key), user_id=key) == 1
        assert next(iter(connection)) == Account(key)


def test_revocation(store: SyncStore, key: str) -> None:
    """A revoked token is refused."""
    now = datetime.now(UTC)
    assert not store[REVOKED].check("access", jti=key, user=key, issued_at=now).revoked
    assert store[REVOKED].revoke_token("access", key, until=now + timedelta(minutes=5))
    assert store[REVOKED].check("access", jti=key, user=key, issued_at=now).revoked


def test_pages_and_windows(store: SyncStore) -> None:
    """Cached pages, and when their windows are open."""
    page = store[TABLE].page()
    assert page is not None
    assert page.body == b"1 matches"
    with store[SITE].changing(TABLE.at()):
        SOURCE.append(SOURCE[0])
    changed = store[TABLE].page()
    assert changed is not None
    assert changed.body == b"2 matches"
    assert not store[MATCHES].now().is_open
    windows = store[SITE].windows
    assert windows is not None
    assert not windows.last_known().is_open


def test_write_behind(store: SyncStore, key: str) -> None:
    """Counters and records wait for their flush."""
    assert store[VIEWS].add(page=key, views=2)
    assert store[VIEWS].pending(page=key) == {"views": 2}
    assert store[VOTES].append(Account(key))
    assert store[VOTES].backlog() >= 1


def test_usage(server: Valkey, database: AsyncEngine, key: str) -> None:
    """Reservations are `with` blocks that settle or release; a flusher runs for a block, too."""

    async def create() -> None:
        await create_tables(database)
        async with database.begin() as connection:
            await connection.run_sync(METADATA.create_all)

    asyncio.run(create())
    table = CounterTable(database, USAGE_TABLE, USAGE.counters)
    with sync.connect(server.url, CATALOGUE, resources={USAGE: table}) as store:
        with store[USAGE].flusher():
            assert store[USAGE].record(key, tokens=5)
            with store[USAGE].reserve(key, tokens=50, limits={"tokens": 100}) as reservation:
                assert reservation.settle(tokens=20)
            assert store[USAGE].totals(key).used == {"tokens": 25}


def test_jobs(server: Valkey, database: AsyncEngine) -> None:
    """Jobs are enqueued and looked up."""
    with sync.connect(server.url, CATALOGUE, resources={JOBS: database}) as store:
        store[JOBS].create_tables()
        job = store[JOBS].enqueue(double, 21)
        assert store[JOBS].get(job).state == "waiting"
        assert not hasattr(store[JOBS], "enqueue_in")
        store[JOBS].cancel(job)


def test_planner(server: Valkey, database: AsyncEngine) -> None:
    """A tick hands tasks to a plain function, and a plain function builds."""
    with sync.connect(server.url, CATALOGUE, resources={FEED: database}) as store:
        planner, tasks = store[FEED], list[Task]()
        planner.create_tables()
        planner.enroll("ann", plan="free")
        planner.subscribe("ann", "news")
        planner.publish("news")

        def enqueue(given: object) -> None:
            tasks.extend(given)  # type: ignore[arg-type]

        planner.tick(enqueue)
        assert [task.user_id for task in tasks] == ["ann"]

        def build(dataset: Dataset) -> list[int]:
            return [len(planner.insights(dataset))]

        assert planner.rebuild("ann", build).outcome == "rebuilt"
        assert planner.status.mode == "redis"


def test_closing_ends_a_listener(server: Valkey, key: str) -> None:
    """An iterator that waits in another thread ends when the store is closed."""
    store = sync.connect(server.url, CATALOGUE)
    ready, ended = threading.Event(), list[str]()

    def listen() -> None:
        try:
            with store[FANOUT].connect(user_id=key) as connection:
                ready.set()
                for _ in connection:
                    pass
        except StoreClosed:
            pass
        ended.append("yes")

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(60)
    store.close()
    thread.join(60)
    assert ended == ["yes"]
