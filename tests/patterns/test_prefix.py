"""`Catalogue(prefix=...)`: one operation of every pattern touches nothing outside of the prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from langgraph.graph import START, StateGraph
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import (
    Cache,
    Catalogue,
    DeferredCounters,
    DeferredRecords,
    Entitlements,
    Events,
    Fanout,
    Flusher,
    Freshness,
    HttpCache,
    Jobs,
    Key,
    Lexical,
    LocalCache,
    Locks,
    Plan,
    Planner,
    Preferences,
    Progress,
    RateLimits,
    ReadWriteLocks,
    Revocation,
    Scope,
    SemanticBackend,
    SemanticCache,
    Semaphores,
    Sessions,
    Store,
    TokenKind,
    Usage,
    Windows,
    embedded,
    fixed,
    sliding,
    sliding_window,
)
from ephemera.adapters.langgraph import GraphCheckpoints
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import SERVER_IDENTITY, connect
from ephemera.operations.configuration import access_rules
from ephemera.operations.documentation import describe
from ephemera.patterns.events import Delivery
from ephemera.patterns.jobs import CeleryDelivery, Run, sql_engine
from ephemera.patterns.progress import Snapshot
from ephemera.patterns.write_behind import CounterTable, RecordTable, create_tables
from ephemera.sql import migrate
from ephemera.wire import open_client
from tests.patterns.job_store import attempt_by
from tests.wire.conditions import eventually

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
FRESH = Freshness(fresh=MINUTE)


class User(msgspec.Struct):
    """A record of a user, with defaults."""

    user_id: str = "ann"
    age: int = 0


class Visit(Key, pattern="visits:{day}"):
    """Visits of a day."""

    day: date


async def _schedule(source: Any, since: datetime, until: datetime) -> list[datetime]:
    return [datetime.now(UTC)]


async def _page(source: Any) -> str:
    return str(source)


class Service:
    """The same declarations for every prefix."""

    def __init__(self, prefix: str) -> None:
        catalogue = self.catalogue = Catalogue(prefix.replace(":", "-"), prefix=prefix)
        hour = fixed(hours=1)
        self.visits = catalogue.counter(Visit.pattern, lifetime=hour, purpose="x")
        self.hash = catalogue.hash("user:{id}", User, lifetime=hour, purpose="x")
        self.news = catalogue.channel("news", str, purpose="x")
        self.sessions = Sessions(
            catalogue, "session:{session_id}", User, user="user_id", lifetime=sliding(hours=1)
        )
        self.profiles = Cache(
            catalogue,
            "profile:{id}",
            str,
            fresh=MINUTE,
            tags=lambda value, **_: ["tag"],
            local=LocalCache(),
            purpose="x",
        )
        self.table = Cache(catalogue, "table", str, fresh=MINUTE, purpose="no field: its slot is its own")
        self.locks = Locks(catalogue, "lock:{name}", lease=SECOND * 30, purpose="x")
        self.one_lock = Locks(catalogue, "only-lock", lease=SECOND * 30, purpose="x")
        self.pool = Semaphores(catalogue, "pool:{name}", permits=2, lease=SECOND * 30, purpose="x")
        self.shelf = ReadWriteLocks(catalogue, "shelf:{name}", lease=SECOND * 30, purpose="x")
        self.rule = sliding_window("calls", 5, per=MINUTE, key="calls:{user}")
        self.limits = RateLimits(catalogue, "limits", self.rule)
        self.events: Events[User] = Events(catalogue, "users", User, order_by="user_id", purpose="x")
        self.progress: Progress[User] = Progress(
            catalogue, "progress:{job_id}", User, wake="progress", terminal=User
        )
        self.fanout: Fanout[User] = Fanout(catalogue, "online:{user_id}", User, channel="notes")
        self.look = Preferences(catalogue, "look:{user_id}", User)
        self.plan = Entitlements(catalogue, "plan:{id}", User, lifetime=hour)
        self.revoked = Revocation(
            catalogue, tokens={"access": TokenKind("revoked:{jti}", lifetime=timedelta(minutes=15))}
        )
        self.windows: Windows[Any] = Windows(catalogue, "window", _schedule)
        self.site: HttpCache[Any] = HttpCache(catalogue, "site", windows=self.windows)
        self.start = self.site.resource(
            "page:start", _page, freshness=FRESH, in_window=FRESH, prewarm=True, purpose="x"
        )
        self.answers: SemanticCache[str, Scope] = SemanticCache(
            catalogue, "answers:{hash}", str, scope=Scope, lifetime=hour, purpose="x"
        )
        self.graphs = GraphCheckpoints(catalogue, "graph:{thread_id}", lifetime=hour)

    @property
    def resources(self) -> dict[Any, Any]:
        """What the declarations need besides Redis."""
        backend = SemanticBackend(embedder=Lexical())
        return {self.windows: self.catalogue.name, self.site: self.catalogue.name, self.answers: backend}


async def use(service: Service, store: Store) -> None:
    """One or more operations of every pattern that needs only Redis."""
    name = service.catalogue.name
    await store[service.visits].add(**Visit(date(2026, 11, 18)))
    await store[service.hash].put(User(name), id="1")
    await store[service.news].publish(name)
    token = await store[service.sessions].create(User("ann"))
    assert await store[service.sessions].update(token, age=3)
    assert len(await store[service.sessions].of_user("ann")) == 1

    async def load(**_: Any) -> str:
        return name

    for cache in (service.profiles, service.table):
        fields: Any = {"id": "1"} if cache is service.profiles else {}
        assert await store[cache].get_or_load(load, **fields) == name
    await store[service.profiles].invalidate_tag("tag")
    async with (
        store[service.locks].hold(name="x"),
        store[service.one_lock].hold(),
        store[service.pool].hold(name="x"),
        store[service.shelf].read(name="x"),
    ):
        pass
    assert (await store[service.limits].check(service.rule.on("ann"))).allowed
    await _exchange(service, store, name)
    await _look_up(service, store, name)


async def _exchange(service: Service, store: Store, name: str) -> None:
    handled: list[User] = []

    async def handle(event: User, delivery: Delivery) -> None:
        handled.append(event)

    await store[service.events].publish(User(name))
    async with store[service.events].consume("group", handle):
        await eventually(lambda: handled == [User(name)])
    await store[service.progress].append(User(name), job_id="1")

    async def snapshot(**_: str) -> Snapshot:
        raise AssertionError

    listened: Any = [each async for each in store[service.progress].listen(snapshot=snapshot, job_id="1")]
    assert [each.event for each in listened] == [User(name)]
    async with store[service.fanout].connect(user_id="ann") as connection:
        await store[service.fanout].push(User(name), user_id="ann")
        assert await anext(connection) == User(name)


async def _look_up(service: Service, store: Store, name: str) -> None:
    async def load(**_: Any) -> User:
        return User(name)

    assert (await store[service.look].merge({"age": 7}, user_id="ann")).age == 7
    assert await store[service.plan].get(load, id="1") == User(name)
    await store[service.revoked].revoke_user("ann")
    await store[service.revoked].revoke_token("access", "j1", until=datetime.now(UTC) + MINUTE)
    await store[service.site].prewarm()
    page = await store[service.start].page()
    assert page is not None
    assert page.body == name.encode()

    async def ask(prompt: str) -> str:
        return name

    scope = Scope(organization="o", provider="p", model="m", language="en", documents=frozenset())
    assert (await store[service.answers].get_or_ask("what is it", scope, ask)).value == name

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"x": name}

    builder: Any = StateGraph(dict)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=store[service.graphs])
    await graph.ainvoke({"x": ""}, {"configurable": {"thread_id": "t1"}})


@asynccontextmanager
async def confined(url: str, prefix: str) -> AsyncIterator[str]:
    """The URL of a user who may do everything, but only with keys and channels of a prefix."""
    user = f"only-{prefix}".replace(":", "-")
    rules = (">secret", "on", f"~{prefix}*", f"&{prefix}*", f"~{SERVER_IDENTITY.key()}", "+@all")
    async with open_client(url) as admin:
        for node in admin.nodes():
            await node.call("ACL", "SETUSER", user, "reset", *rules)
    scheme, _, rest = url.partition("://")
    yield f"{scheme}://{user}:secret@{rest.rpartition('@')[2]}"


async def keys_of(url: str) -> set[bytes]:
    """All keys of a server or a cluster."""
    async with open_client(url) as client:
        return {key for node in client.nodes() for key in await node.call("KEYS", "*")}


async def check_confined(url: str) -> None:
    """Two services with the same declarations run on one server, each confined to its prefix."""
    first, second = Service("shop:"), Service("eu:bank:")
    for service in (first, second):
        async with confined(url, service.catalogue.prefix) as own:
            async with connect(own, service.catalogue, resources=service.resources) as store:
                await use(service, store)
    found = await keys_of(url)
    for service in (first, second):
        prefix = service.catalogue.prefix.encode()
        own_keys = {key for key in found if key.startswith(prefix)}
        assert len(own_keys) > 20
        assert all(service.catalogue.classify(key) for key in own_keys)
        found -= own_keys
    assert found == set()


async def test_no_pattern_leaves_its_prefix() -> None:
    """Every key and channel that any pattern uses, inside scripts too, begins with the prefix."""
    with embedded.valkey() as own:
        await check_confined(own.url)


@pytest.mark.standalone("it starts a cluster of its own")
async def test_no_pattern_leaves_its_prefix_on_a_cluster() -> None:
    """The same on a cluster, where keys of one operation share a slot in spite of the prefix."""
    with embedded.cluster() as own:
        await check_confined(own.url)


async def test_services_do_not_see_each_other(server: Valkey) -> None:
    """What one service wrote, signed in, locked or limited does not exist for the other."""
    first, second = Service("one:"), Service("two:")
    async with (
        connect(server.url, first.catalogue, resources=first.resources) as one,
        connect(server.url, second.catalogue, resources=second.resources) as two,
    ):
        token = await one[first.sessions].create(User("ann"))
        assert await two[second.sessions].get(token) is None
        await one[first.visits].add(5, day=date(2026, 1, 1))
        assert await two[second.visits].get(day=date(2026, 1, 1)) == 0
        async with one[first.locks].hold(name="x"), two[second.locks].hold(name="x"):
            assert (await one[first.limits].check(first.rule.on("ann"), cost=5)).allowed
            assert (await two[second.limits].check(second.rule.on("ann"))).allowed
        async with one[first.fanout].connect(user_id="ann"):
            assert await two[second.fanout].push(User(), user_id="ann") == 0


def test_rules_and_documentation_have_the_prefix() -> None:
    """Every ACL pattern but that of the server's mark begins with it, and so does every documented key."""
    catalogue = Service("shop:").catalogue
    rules = access_rules(catalogue, "shop", purposes=("service", "tracking", "metrics"))
    assert SERVER_IDENTITY.key() in rules.keys
    assert all(key.startswith("shop:") for key in rules.keys if key != SERVER_IDENTITY.key())
    assert rules.channels
    assert all(channel.startswith("shop:") for channel in rules.channels)
    assert all(keyspace.pattern.startswith("shop:") for keyspace in catalogue)
    assert all(doc.pattern.startswith("shop:") for doc in describe(catalogue))


@pytest.fixture
def own_server() -> Iterator[Valkey]:
    """A server where the store is not restricted, and may ask about its own connection."""
    with embedded.valkey() as own:
        yield own


async def test_tracking_asks_for_the_prefix_only(own_server: Valkey) -> None:
    """The local cache is notified of changes of its own service's keys alone."""
    service = Service("tracked:")
    async with connect(own_server.url, service.catalogue, resources=service.resources) as store:

        async def load(**_: Any) -> str:
            return "x"

        await store[service.profiles].get_or_load(load, id="1")
        info: Any = None

        async def tracked() -> bool:
            nonlocal info
            info = await store.client("cache").call("CLIENT", "TRACKINGINFO")
            return bool(info[b"prefixes"])

        while not await tracked():
            pass
        assert all(prefix.startswith(b"tracked:") for prefix in info[b"prefixes"])


@pytest.mark.parametrize("prefix", ["shop", "shop*:", "{shop}:", " :", ":", "shop::", "é:"])
def test_prefixes_that_cannot_work_are_refused(prefix: str) -> None:
    """A prefix is plain text that ends with a colon."""
    with pytest.raises(InvalidDeclaration, match="prefix="):
        Catalogue("x", prefix=prefix)


class Sql:
    """The patterns that also need SQL."""

    def __init__(self, prefix: str) -> None:
        catalogue = self.catalogue = Catalogue("sql-service", prefix=prefix)
        metadata = self.metadata = sa.MetaData()
        self.jobs = Jobs(catalogue, "checkpoint:{job_id}", queues=("work",), name="prefixed")
        self.double = self.jobs.job(queue="work")(double)
        self.views = DeferredCounters(catalogue, "views", key=("page",), measures=("views",), purpose="x")
        self.votes = DeferredRecords(catalogue, "votes", User, purpose="x")
        self.usage = Usage(catalogue, measures=["words"], purpose="x")
        self.planner = Planner(
            catalogue,
            metadata,
            plans={"free": Plan(novelty=1, every=DAY, active_within=DAY, cooldown=timedelta(0))},
            insight_columns=[sa.Column("text", sa.Text)],
        )
        self.view_table = sa.Table(
            "views", metadata, sa.Column("page", sa.Text, primary_key=True), sa.Column("views", sa.BigInteger)
        )
        self.vote_table = sa.Table(
            "votes", metadata, sa.Column("user_id", sa.Text, primary_key=True), sa.Column("age", sa.Integer)
        )
        self.usage_table = sa.Table(
            "usage",
            metadata,
            sa.Column("organization_id", sa.Text, primary_key=True),
            sa.Column("period", sa.Text, primary_key=True),
            sa.Column("words", sa.BigInteger),
        )

    def resources(self, engine: AsyncEngine) -> dict[Any, Any]:
        """What the declarations need besides Redis."""
        usage = CounterTable(engine, self.usage_table, self.usage.counters)
        return {self.jobs: CeleryDelivery(engine), self.usage: usage, self.planner: engine}


async def double(run: Run, number: int) -> int:
    """A job with a step."""

    async def work() -> int:
        return 2 * number

    return await run.step("work", work)


@pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")
async def test_no_pattern_with_sql_leaves_its_prefix(postgres: Postgres) -> None:
    """Jobs with Celery's queues, write-behind, usage and the planner stay inside of the prefix, too."""
    service = Sql("shop:")
    engine = sql_engine(postgres.database("test_prefix"))
    await migrate(engine, service.jobs, service.planner)
    await create_tables(engine)
    async with engine.begin() as connection:
        await connection.run_sync(service.metadata.create_all)
    with embedded.valkey() as own:
        async with confined(own.url, "shop:") as url:
            async with connect(url, service.catalogue, resources=service.resources(engine)) as store:
                await _use_sql(service, store, engine)
        found = await keys_of(own.url)
        assert len(found) > 5
        assert all(key.startswith(b"shop:") and service.catalogue.classify(key) for key in found)
    await engine.dispose()


async def _use_sql(service: Sql, store: Store, engine: AsyncEngine) -> None:
    jobs, planner = store[service.jobs], store[service.planner]
    job_id = await jobs.enqueue(service.double, 4)
    await attempt_by(jobs).run(job_id)
    assert await jobs.result(job_id) == 8
    await store[service.views].add(page="start", views=1)
    await store[service.votes].append(User("ann", 3))
    await store[service.usage].record("acme", words=3)
    views, votes = (
        CounterTable(engine, service.view_table, service.views),
        RecordTable(engine, service.vote_table),
    )
    await Flusher(store[service.views], views, write_delay=timedelta(0)).flush()
    await Flusher(store[service.votes], votes, write_delay=timedelta(0)).flush()
    await store[service.views].add(page="start", views=1)
    await planner.enroll("ann", plan="free")
    await planner.subscribe("ann", "news")
    await planner.publish("news", text="x")

    async def enqueue(tasks: Any) -> None:
        pass

    await planner.tick(enqueue)
