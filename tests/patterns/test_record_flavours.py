"""Every pattern that stores a service's own type accepts each way of declaring one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any, Literal

import pydantic
import pytest
import sqlalchemy as sa

from ephemera import (
    Cache,
    Catalogue,
    DeferredRecords,
    Events,
    Fanout,
    Flusher,
    Jobs,
    Preferences,
    Progress,
    RecordTable,
    Sessions,
    Store,
    connect,
    sliding,
)
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidValue
from ephemera.patterns.events import Delivery
from ephemera.patterns.jobs import BoundJobs, Retry, Run, sql_engine
from ephemera.patterns.progress import Snapshot
from ephemera.patterns.write_behind import create_tables
from tests.keyspace.record_flavours import FLAVOURS, ModelUser, make, value_of
from tests.patterns.job_store import attempt_by
from tests.wire.conditions import eventually

flavours = pytest.mark.parametrize("flavour", FLAVOURS)
CATALOGUE = Catalogue("record-flavours")
MINUTE = timedelta(minutes=1)
SESSIONS: dict[tuple[str, str], Sessions[Any]] = {
    (name, kind): Sessions(
        CATALOGUE,
        f"fl_{kind}_{name}:{{session_id}}",
        each,
        user="user_id",
        lifetime=sliding(hours=1),
        kind=kind,
        index=f"fl_{kind}_{name}_of:{{user_id}}",
    )
    for name, each in FLAVOURS.items()
    for kind in ("hash", "value")
}
CACHES: dict[str, Cache[Any]] = {
    name: Cache(CATALOGUE, f"fl_cache_{name}:{{id}}", each, fresh=MINUTE, purpose="x")
    for name, each in FLAVOURS.items()
}
EVENTS: dict[str, Events[Any]] = {
    name: Events(CATALOGUE, f"fl_events_{name}:{{id}}", each, order_by="user_id", purpose="x")
    for name, each in FLAVOURS.items()
}
FANOUTS: dict[str, Fanout[Any]] = {
    name: Fanout(CATALOGUE, f"fl_fan_{name}:{{user_id}}", each, channel=f"fl_fan_{name}")
    for name, each in FLAVOURS.items()
}


class Look(pydantic.BaseModel):
    """Settings."""

    theme: Literal["light", "dark"] = "light"
    font_size: int = pydantic.Field(default=14, gt=0, alias="fontSize")


class Stepped(pydantic.BaseModel):
    """A step is done."""

    kind: Literal["stepped"] = "stepped"
    number: int


class Ended(pydantic.BaseModel):
    """All is done."""

    kind: Literal["ended"] = "ended"


LOOK = Preferences(CATALOGUE, "fl_look:{user_id}", Look)
STEPS: Progress[Any] = Progress(
    CATALOGUE, "fl_steps:{job_id}", Stepped | Ended, wake="fl_steps", terminal=Ended
)
ANY_STEP: Any = Annotated[Stepped | Ended, pydantic.Field(discriminator="kind")]
STEP_EVENTS: Events[Any] = Events(
    CATALOGUE,
    "fl_step_events:{id}",
    ANY_STEP,
    purpose="x",
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with all patterns."""
    async with connect(url, CATALOGUE) as opened:
        yield opened


@flavours
@pytest.mark.parametrize("kind", ["hash", "value"])
async def test_sessions(store: Store, flavour: str, kind: str, key: str) -> None:
    """A session is created, read, changed in part and listed; a change that does not fit is refused."""
    sessions = store[SESSIONS[flavour, kind]]
    token = await sessions.create(make(flavour, key))
    assert await sessions.get(token) == make(flavour, key)
    assert await sessions.update(token, age=31, tags=["c"])
    changed = await sessions.get(token)
    assert (value_of(changed, "age"), value_of(changed, "tags")) == (31, ["c"])
    assert value_of(changed, "user_id") == key
    for wrong in ({"age": -1}, {"age": None}, {"seen": "never"}):
        with pytest.raises(InvalidValue):
            await sessions.update(token, **wrong)
    assert await sessions.end_all(key) == 1
    assert await sessions.get(token) is None


@flavours
async def test_caches(store: Store, flavour: str, key: str) -> None:
    """A loaded value is cached as its type."""
    loaded: list[int] = []

    async def load(**_: str) -> Any:
        loaded.append(1)
        return make(flavour)

    for _ in range(2):
        assert await store[CACHES[flavour]].get_or_load(load, id=key) == make(flavour)
    assert loaded == [1]


@flavours
async def test_events(store: Store, flavour: str, key: str) -> None:
    """An event is published and handled as its type, even when it is ordered by a field."""
    events = store[EVENTS[flavour]]
    handled: list[Any] = []

    async def handle(event: Any, delivery: Delivery) -> None:
        handled.append(event)

    await events.publish(make(flavour), id=key)
    with pytest.raises(InvalidValue):
        await events.publish("ann", id=key)
    async with events.consume("group", handle, id=key):
        await eventually(lambda: len(handled) == 1)
    assert handled == [make(flavour)]


async def test_events_of_several_models(store: Store, key: str) -> None:
    """A stream of a discriminated union of models gives each event as what it was."""
    handled: list[Any] = []

    async def handle(event: Any, delivery: Delivery) -> None:
        handled.append(event)

    for event in (Stepped(number=1), Ended()):
        await store[STEP_EVENTS].publish(event, id=key)
    async with store[STEP_EVENTS].consume("group", handle, id=key):
        await eventually(lambda: len(handled) == 2)
    assert sorted(handled, key=lambda each: each.kind) == [Ended(), Stepped(number=1)]


@flavours
async def test_fanout(store: Store, flavour: str, key: str) -> None:
    """A message reaches a connection as its type."""
    fanout = store[FANOUTS[flavour]]
    async with fanout.connect(user_id=key) as connection:
        await fanout.push(make(flavour), user_id=key)
        assert await anext(connection) == make(flavour)


async def test_preferences(store: Store, key: str) -> None:
    """Settings of a model have its defaults, and are merged by field name, whatever the alias is."""
    looks = store[LOOK]
    assert await looks.get(user_id=key) == Look()
    assert (await looks.merge({"theme": "dark"}, user_id=key)).theme == "dark"
    merged = await looks.merge({"font_size": 20}, user_id=key)
    assert (merged.theme, merged.font_size) == ("dark", 20)
    assert await looks.get(user_id=key) == merged
    for wrong in ({"font_size": 0}, {"theme": "pink"}, {"fontSize": 3}):
        with pytest.raises(InvalidValue):
            await looks.merge(wrong, user_id=key)


async def test_progress(store: Store, key: str) -> None:
    """Events of a union of models reach a listener, and the terminal one ends it."""
    for event in (Stepped(number=1), Ended()):
        await store[STEPS].append(event, job_id=key)

    async def snapshot(job_id: str) -> Snapshot:
        raise AssertionError(job_id)

    seen: list[Any] = [each async for each in store[STEPS].listen(snapshot=snapshot, job_id=key)]
    assert [update.event for update in seen] == [Stepped(number=1), Ended()]
    assert seen[0].data == b'{"kind":"stepped","number":1}'


DEFERRED: dict[str, DeferredRecords[Any]] = {
    name: DeferredRecords(CATALOGUE, f"fl_rows_{name}", each, purpose="x", shards=1)
    for name, each in FLAVOURS.items()
}


@flavours
async def test_deferred_records(store: Store, postgres: Postgres, flavour: str) -> None:
    """A record of any flavour reaches its row in SQL, and one that does not fit is refused."""
    engine, metadata = sql_engine(postgres.database("test_record_flavours")), sa.MetaData()
    columns: dict[str, Any] = {
        "user_id": sa.Text,
        "id": sa.Uuid,
        "age": sa.Integer,
        "seen": sa.DateTime(timezone=True),
        "admin": sa.Boolean,
        "tags": sa.JSON,
        "score": sa.Float,
    }
    table = sa.Table(f"rows_{flavour}", metadata, *(sa.Column(name, kind) for name, kind in columns.items()))
    await create_tables(engine)
    async with engine.begin() as sql:
        await sql.run_sync(metadata.drop_all)
        await sql.run_sync(metadata.create_all)
    records = store[DEFERRED[flavour]]
    await records.append(make(flavour), make(flavour, "bob", admin=True))
    with pytest.raises(InvalidValue):
        await records.append("ann")
    await Flusher(records, RecordTable(engine, table), write_delay=timedelta(0)).flush()
    async with engine.begin() as sql:
        rows = (await sql.execute(sa.select(table).order_by(table.c.user_id))).all()
    await engine.dispose()
    assert [(row.user_id, row.age, row.tags) for row in rows] == [
        ("ann", 30, ["a", "b"]),
        ("bob", 30, ["a", "b"]),
    ]


JOB_CATALOGUE = Catalogue("flavour-jobs")
JOBS = Jobs(JOB_CATALOGUE, "fl_checkpoint:{job_id}", queues=("flavours",), name="flavours")
ATTEMPT = Retry(attempts=1)


@JOBS.job(queue="flavours", retry=ATTEMPT)
async def birthday(run: Run, user: ModelUser, steps: list[Stepped | Ended]) -> ModelUser:
    """Return the user, a year older, by a step that returns one too."""

    async def age() -> ModelUser:
        return user.model_copy(update={"age": user.age + len(steps)})

    return await run.step("age", age)


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs whose attempts the test makes itself."""
    engine = sql_engine(postgres.database("test_record_flavours"))
    async with connect(server.url, JOB_CATALOGUE, resources={JOBS: engine}) as store:
        await store[JOBS].create_tables()
        yield store[JOBS]
    await engine.dispose()


@pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")
async def test_jobs(jobs: BoundJobs) -> None:
    """Arguments, steps and results of a job are models; an argument that is not one is refused."""
    job_id = await jobs.enqueue(birthday, make("pydantic"), [Stepped(number=1), Ended()])
    await attempt_by(jobs).run(job_id)
    assert await jobs.result(job_id) == make("pydantic", age=32)
    wrong: Any = {"user_id": "ann"}
    with pytest.raises(InvalidValue):
        await jobs.enqueue(birthday, wrong, [])
