"""What a scrape shows: each count, without a round trip."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from time import monotonic

import pytest
from prometheus_client import CollectorRegistry, Counter

from ephemera import embedded
from ephemera.embedded import Cluster, Postgres, Sentinel, Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue, LockLost, Unavailable
from ephemera.keyspace import Store, connect
from ephemera.operations.metrics import StoreMetrics
from ephemera.operations.metrics._families import SERVER_COMMANDS
from ephemera.patterns.cache import cache_engine
from tests.operations.metrics_fixtures import (
    FEED,
    GREETING,
    INGEST,
    LIMITS,
    LOGIN,
    NEWS,
    PAGES,
    ROOMS,
    SEARCH,
    VIEWS,
    VISITS,
    Service,
    Visit,
    catalogue,
    draw,
    parsed,
    service,
)


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store on the shared server."""
    async with connect(server.url, catalogue) as opened:
        yield opened


@pytest.fixture
async def working(server: Valkey, postgres: Postgres) -> AsyncIterator[Service]:
    """The service on the shared server."""
    async with service(server.url, postgres) as opened:
        yield opened


def scrape(store: Store) -> dict[tuple[str, ...], float]:
    """The samples of a scrape of a store."""
    return parsed(StoreMetrics(store).render()[0].decode())


async def test_hits_misses_writes_and_bytes_are_counted_by_keyspace(store: Store, key: str) -> None:
    """A value of five bytes, written once and read twice, is ten bytes read and five written."""
    greetings, of = store[GREETING], "keyspace=greeting:{user_id}"
    await greetings.put("hello", user_id=key)
    await greetings.get(user_id=key)
    await greetings.get_many([{"user_id": key}, {"user_id": f"{key}-2"}])
    shown = scrape(store)
    counted = ("hits", "misses", "writes", "errors")
    assert [shown[f"ephemera_keyspace_{name}_total", of] for name in counted] == [2, 1, 1, 0]
    assert shown["ephemera_keyspace_read_bytes_total", of] == 10
    assert shown["ephemera_keyspace_written_bytes_total", of] == 5


async def test_errors_are_counted_and_the_connection_shown_as_down(key: str) -> None:
    """With the server unavailable, errors grow, the connection is 0, and the scrape still answers."""
    with embedded.valkey() as own:
        async with connect(own.url, catalogue) as store:
            metrics = StoreMetrics(store)
            await metrics.sample()
            up = next(each for each in metrics.samples() if each.metric.name == "ephemera_connection_up")
            assert up.value
            own.kill()
            while store.client("cache").up:
                await asyncio.sleep(0.005)
            with pytest.raises(Unavailable):
                await store[GREETING].get(user_id=key)
            shown = parsed(metrics.render()[0].decode())
            assert shown["ephemera_connection_up", f"server={up.labels[0]}"] == 0
            assert shown["ephemera_keyspace_errors_total", "keyspace=greeting:{user_id}"] >= 1
            await metrics.sample()
            later = parsed(metrics.render()[0].decode())
            assert later["ephemera_sample_failures_total", "source=servers"] >= 1
            assert later["ephemera_server_uptime_seconds", f"server={up.labels[0]}"] >= 0


async def test_reconnections_are_counted(key: str) -> None:
    """A connection closed by the server is one reconnection."""
    with embedded.valkey() as own:
        async with connect(own.url, catalogue) as store, connect(own.url, catalogue) as other:
            assert _one(scrape(store), "ephemera_reconnections_total") == 0
            await other.call("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes")
            while _one(scrape(store), "ephemera_reconnections_total") == 0:
                await asyncio.sleep(0.005)


@pytest.mark.standalone("it looks at the connection of one server")
async def test_call_latency_is_a_histogram(store: Store, key: str) -> None:
    """Its buckets are cumulative, and its count is the number of calls."""
    link = store.client("cache").nodes()[0]
    for _ in range(20):
        await store.call("PING")
    shown = scrape(store)
    server = f"server={link.endpoint}"
    classes = [value for name, value in shown.items() if name[0] == "ephemera_call_duration_seconds_bucket"]
    assert classes == sorted(classes)
    assert shown["ephemera_call_duration_seconds_count", server] == classes[-1] >= 20
    assert shown["ephemera_call_duration_seconds_sum", server] > 0


async def test_latencies_are_counted_for_the_keyspace_of_the_round_trip(store: Store, key: str) -> None:
    """Reads, writes and scripts count for their own keyspace, and what has no key for none."""
    metrics = StoreMetrics(store, every=timedelta(hours=1))
    for _ in range(2):  # the second one waits for that of the background task
        await metrics.sample()
    for _ in range(20):
        await store[GREETING].put("hello", user_id=key)
        await store[GREETING].get(user_id=key)
        await store[LIMITS].check(SEARCH.on(key))
    await metrics.sample()
    shown = parsed(metrics.render()[0].decode())
    name, of = "ephemera_keyspace_duration_seconds", "keyspace=greeting:{user_id}"
    classes = [value for series, value in shown.items() if series[0] == f"{name}_bucket" and of in series]
    assert classes == sorted(classes)
    assert shown[f"{name}_count", of] == classes[-1]
    assert 36 <= classes[-1] <= 40  # one whose write begins with another command counts for that one
    assert 0 < shown[f"{name}_sum", of] < 60
    spaces = {series[1] for series in shown if series[0] == f"{name}_count"}
    assert len(spaces) == 2, spaces


async def test_limit_decisions_are_counted_for_the_rule_that_decided(store: Store, key: str) -> None:
    """Of two rules checked together, a denial counts for the one that denied, even a remembered one."""
    limiter = store[LIMITS]
    async with asyncio.timeout(60):
        while not limiter.remembered:
            await limiter.check(LOGIN.on(key), SEARCH.on(key))
    shown = scrape(store)

    def decided(rule: str, decision: str) -> float:
        return shown["ephemera_limit_decisions_total", f"decision={decision}", f"rule={rule}"]

    assert decided("login", "allowed") == decided("search", "allowed") == limiter.allowed == 2
    assert decided("login", "denied") == limiter.denied >= 1
    assert decided("login", "remembered") == 1
    assert decided("search", "denied") == decided("search", "remembered") == 0


async def test_limits_without_a_server_are_counted_as_degraded(key: str) -> None:
    """Decisions made by policy count neither as allowed nor as denied."""
    with embedded.valkey() as own:
        async with connect(own.url, catalogue) as store:
            await store[LIMITS].check(SEARCH.on(key))
            own.kill()
            while not (await store[LIMITS].check(SEARCH.on(key))).degraded:
                pass
            shown = scrape(store)
            of = ("ephemera_limit_decisions_total", "decision=degraded", "rule=search")
            assert shown[of] == store[LIMITS].degraded >= 1


async def test_limits_over_several_slots_are_counted_by_rule(cluster: Cluster, key: str) -> None:
    """On a cluster with keys on different nodes, each rule counts the same."""
    async with connect(cluster.url, catalogue) as store:
        for _ in range(3):
            await store[LIMITS].check(LOGIN.on(key), SEARCH.on(key))
        shown = scrape(store)
        for rule in ("login", "search"):
            assert shown["ephemera_limit_decisions_total", "decision=allowed", f"rule={rule}"] == 2
        assert shown["ephemera_limit_decisions_total", "decision=denied", "rule=login"] == 1
        assert shown["ephemera_limit_decisions_total", "decision=denied", "rule=search"] == 0
        assert len([name for name in shown if name[0] == "ephemera_connection_up"]) == 3


async def test_a_cluster_is_sampled_node_by_node(cluster: Cluster, key: str) -> None:
    """Each master shows its memory, and figures of all nodes are combined."""
    async with connect(cluster.url, catalogue) as store:
        metrics = StoreMetrics(store, every=timedelta(hours=1))
        for _ in range(8):
            await store[VISITS].append(Visit(key))
        await store[NEWS].publish(Visit(key))
        await metrics.sample()
        shown = parsed(metrics.render()[0].decode())
    assert len([name for name in shown if name[0] == "ephemera_server_memory_bytes"]) == 3
    assert shown["ephemera_write_behind_backlog", "queue=visits"] == 8
    assert shown["ephemera_stream_length", "keyspace=news:all"] == 1
    assert shown["ephemera_write_behind_age_seconds", "queue=visits"] >= 0


async def test_behind_sentinels(sentinel: Sentinel, key: str) -> None:
    """A master behind Sentinels is one server, named by the master's name."""
    async with connect(sentinel.url, catalogue) as store:
        metrics = StoreMetrics(store, every=timedelta(hours=1))
        await metrics.sample()
        shown = parsed(metrics.render()[0].decode())
    (server,) = [name[1] for name in shown if name[0] == "ephemera_connection_up"]
    assert shown["ephemera_server_memory_bytes", server] > 0
    assert "by Sentinel" in server


async def test_a_store_that_starts_without_its_server(key: str) -> None:
    """A store has metrics before its server is available; memory follows later."""
    with embedded.valkey() as own:
        url = own.url
        own.kill()
        async with connect(url, catalogue, required=False) as store:
            metrics = StoreMetrics(store, every=timedelta(hours=1))
            await metrics.sample()
            shown = parsed(metrics.render()[0].decode())
            assert _one(shown, "ephemera_connection_up") == 0
            assert "ephemera_server_memory_bytes" not in {name[0] for name in shown}
            own.restart()
            while not store.client("cache").up:
                await asyncio.sleep(0.005)
            await metrics.sample()
            assert _one(parsed(metrics.render()[0].decode()), "ephemera_server_memory_bytes") > 0


async def test_locks_held_acquired_and_lost(store: Store, key: str) -> None:
    """A lock deleted while held is lost, once, and no longer held."""
    of = "keyspace=lock:ingest:{schema}"

    async def hold() -> None:
        async with store[INGEST].hold(schema=key):
            assert scrape(store)["ephemera_locks_held", of] == 1
            await store.client("queue").call("UNLINK", INGEST.keyspace.key(schema=key))
            await asyncio.sleep(30)

    with pytest.raises(LockLost):
        await hold()
    shown = scrape(store)
    assert [shown[f"ephemera_locks_{name}", of] for name in ("held", "acquired_total", "lost_total")] == [
        0,
        1,
        1,
    ]


async def test_the_local_cache_and_its_evictions(store: Store, key: str) -> None:
    """Of five pages in a budget of two, three are evicted."""

    async def load(name: str) -> str:
        return name

    for number in range(5):
        await store[PAGES].get_or_load(load, name=f"{key}-{number}")
        await store[PAGES].get(name=f"{key}-{number}")
    shown, of = scrape(store), "keyspace=page:{name}"
    assert (shown["ephemera_local_cache_entries", of], shown["ephemera_local_cache_evictions_total", of]) == (
        2,
        3,
    )
    local = cache_engine(store[PAGES]).entries.local
    assert local is not None
    assert shown["ephemera_local_cache_bytes", of] == local.bytes > 0
    assert shown["ephemera_keyspace_read_bytes_total", of] > 0
    assert shown["ephemera_keyspace_written_bytes_total", of] > 0


async def test_streams_show_lag_pending_and_dead_letters(key: str) -> None:
    """An unread event is lag, one in progress is pending, one that failed for good is a dead letter."""
    with embedded.valkey() as own:
        async with connect(own.url, catalogue) as store:
            metrics, news, of = StoreMetrics(store), store[NEWS], ("group=readers", "keyspace=news:all")
            begun, go_on = 0, asyncio.Event()

            async def handle(visit: Visit, _: object) -> None:
                nonlocal begun
                begun += 1
                await go_on.wait()
                if visit.page == "bad":
                    raise ValueError(visit.page)

            await news.publish_many([Visit("bad"), Visit("slow"), Visit("late")])
            async with news.consume("readers", handle, concurrency=2) as consumer:
                while begun < 2:
                    await asyncio.sleep(0.005)
                await metrics.sample()
                shown = parsed(metrics.render()[0].decode())
                assert shown["ephemera_stream_pending", *of] == 2
                assert shown["ephemera_stream_lag", *of] == 1
                assert shown["ephemera_stream_paused", *of] == 0
                assert shown["ephemera_stream_consumers", *of] == 1
                go_on.set()
                while (consumer.counts.handled, consumer.counts.dead) != (2, 1):
                    await asyncio.sleep(0.005)
            await metrics.sample()
            shown = parsed(metrics.render()[0].decode())
            assert shown["ephemera_stream_dead_letters", "keyspace=news:all"] == 1
            # Those of the consumer, which has ended.
            assert shown["ephemera_events_handled_total", *of] == 2
            assert shown["ephemera_events_dead_total", *of] == 1
            assert shown["ephemera_events_failed_total", *of] >= 2


async def test_streams_of_a_pattern_are_summed_over_those_consumed_here(store: Store, key: str) -> None:
    """Streams of a pattern are one figure; a stream that this process does not consume is not included."""
    metrics, rooms = StoreMetrics(store), store[ROOMS]
    for number in range(3):
        await rooms.publish(Visit("home"), room=f"{key}-{number}")

    async def never(*_: object) -> None:
        await asyncio.sleep(30)

    grace = timedelta(0)
    async with (
        rooms.consume("readers", never, grace=grace, room=f"{key}-0"),
        rooms.consume("readers", never, grace=grace, room=f"{key}-1"),
    ):
        await metrics.sample()
        shown = parsed(metrics.render()[0].decode())
    assert shown["ephemera_stream_length", "keyspace=room:{room}"] == 2
    assert not any(key in label for name in shown for label in name)


async def test_jobs_by_state_step_and_duration(working: Service, key: str) -> None:
    """Open jobs are counted by state and step, finished ones by outcome and duration."""
    jobs = working.jobs
    await working.metrics.sample()
    waiting = await jobs.enqueue(draw, 1)
    held = await jobs.enqueue(draw, 9)
    row = await jobs._backend.rows.claim(held, "worker", timedelta(seconds=30))
    assert row is not None
    await jobs._backend.rows.record(None, held, row.fence, "slide:7", b"null")
    assert await working.run(await jobs.enqueue(draw, 3)) == "done"
    assert await working.run(await jobs.enqueue(draw, 1, then_fail=True)) == "dead"
    await jobs.cancel(waiting)
    ended = ("ephemera_jobs_finished_total", "kind=draw")
    async with asyncio.timeout(60):
        while not working.scraped().get((*ended, "state=cancelled")):
            await working.metrics.sample()
    await jobs.enqueue(draw, 1)
    await working.metrics.sample()
    shown = working.scraped()
    assert shown["ephemera_jobs_open", "kind=draw", "queue=work", "state=waiting"] == 1
    assert shown["ephemera_jobs_open", "kind=draw", "queue=work", "state=running"] == 1
    assert shown["ephemera_jobs_at_step", "kind=draw", "step=slide:#"] == 1
    assert shown["ephemera_jobs_oldest_wait_seconds", "queue=work"] >= 0
    assert {state: shown[*ended, f"state={state}"] for state in ("done", "dead", "cancelled")} == {
        "done": 1, "dead": 1, "cancelled": 1,
    }  # fmt: skip
    assert shown["ephemera_job_duration_seconds_count", "kind=draw"] == 2
    assert shown["ephemera_job_duration_seconds_sum", "kind=draw"] > 0


async def test_the_backlog_and_its_age(working: Service, key: str) -> None:
    """Counters and records that wait for SQL are counted, with the age of the oldest."""
    store, metrics = working.store, working.metrics
    await store[VIEWS].add(page=key, views=1)
    before = monotonic()
    await store[VISITS].append(Visit(key))
    async with asyncio.timeout(60):
        while True:
            await metrics.sample()
            shown = working.scraped()
            if shown["ephemera_write_behind_age_seconds", "queue=visits"] > 0.01:
                break
    assert shown["ephemera_write_behind_backlog", "queue=views"] >= 1
    assert shown["ephemera_write_behind_backlog", "queue=visits"] >= 1
    assert shown["ephemera_write_behind_backlog_limit", "queue=visits"] == 1_000_000
    assert shown["ephemera_keyspace_writes_total", "keyspace=visits:pending:{shard}"] == 1
    assert before < monotonic()


async def test_an_empty_backlog_has_age_zero() -> None:
    """An empty backlog has age 0."""
    with embedded.valkey() as own:
        async with connect(own.url, catalogue) as store:
            assert await store[VISITS].backlog_age() == 0
            await store[VISITS].append(Visit("home"))
            while not await store[VISITS].backlog_age():
                pass


async def test_the_planner_shows_its_mode(postgres: Postgres) -> None:
    """A planner that loses Redis reads SQL: the mode changes, and the switch is counted."""

    async def enqueue(_: object) -> None:
        return None

    with embedded.valkey() as own:
        async with service(own.url, postgres) as working:
            await working.planner.tick(enqueue)
            mode = ("ephemera_planner_mode",)
            shown = working.scraped()
            assert (
                shown[*mode, "mode=redis", "planner=measured"],
                shown[*mode, "mode=sql", "planner=measured"],
            ) == (1, 0)
            own.kill()
            await working.planner.tick(enqueue)
            await working.metrics.sample()
            shown = working.scraped()
            assert (
                shown[*mode, "mode=redis", "planner=measured"],
                shown[*mode, "mode=sql", "planner=measured"],
            ) == (0, 1)
            assert shown["ephemera_planner_mode_switches_total", "planner=measured"] == 1
            assert shown["ephemera_planner_ticks_total", "planner=measured"] == 2
            assert shown["ephemera_planner_enqueued_users", "planner=measured"] == 0
    assert FEED in catalogue.patterns


async def test_a_scrape_makes_no_round_trip(working: Service, key: str) -> None:
    """However often it is scraped, the server receives no command for it."""
    await working.use_everything(key)
    await working.metrics.sample()
    links = [node.link for node in working.store.client("cache").nodes()]
    before = [sum(link.latencies.counts) + link.in_flight for link in links]
    for _ in range(50):
        working.metrics.render()
    assert [sum(link.latencies.counts) + link.in_flight for link in links] == before


async def test_a_hung_server_delays_neither_scrapes_nor_other_samples(key: str) -> None:
    """With one of two servers frozen, a scrape answers, and the other server is still sampled."""
    with embedded.valkey() as first, embedded.valkey() as second:
        async with connect(first.url, catalogue, queue_url=second.url) as store:
            metrics = StoreMetrics(store, every=timedelta(hours=1))
            await metrics.sample()
            before = {each.labels: each.value for each in metrics.samples() if each.metric is SERVER_COMMANDS}
            second.pause()
            try:
                metrics.render()
                await metrics.sample()
            finally:
                second.resume()
            after = {each.labels: each.value for each in metrics.samples() if each.metric is SERVER_COMMANDS}
            grown = {labels for labels, value in after.items() if value != before[labels]}
            assert after.keys() == before.keys()
            assert grown == {(f"127.0.0.1:{first.port}",)}


async def test_a_scrape_may_come_from_another_thread(store: Store, key: str) -> None:
    """A thread can scrape while keyspaces are bound and read on the event loop."""
    metrics = StoreMetrics(store)
    async with asyncio.TaskGroup() as group:
        scraping = group.create_task(asyncio.to_thread(lambda: [metrics.render() for _ in range(50)]))
        while not scraping.done():
            store._bound.clear()
            for space in catalogue:
                store[space]
            await store[GREETING].get(user_id=key)
    assert len(scraping.result()) == 50


async def test_samples_carry_their_age(working: Service) -> None:
    """A sample is shown until the next one, with its age."""
    await working.metrics.sample()
    shown = working.scraped()
    ages = {name[1]: value for name, value in shown.items() if name[0] == "ephemera_sample_age_seconds"}
    assert ages.keys() == {"source=servers", "source=jobs", "source=planners"}
    assert all(0 <= age < 10 for age in ages.values())
    while working.scraped()["ephemera_sample_age_seconds", "source=servers"] <= ages["source=servers"]:
        pass


async def test_it_samples_by_itself_and_stops_with_its_store(server: Valkey) -> None:
    """The background task samples, and ends when the store is closed."""
    registry = CollectorRegistry()
    Counter("orders", "Orders.", registry=registry).inc()
    async with connect(server.url, catalogue) as store:
        metrics = StoreMetrics(store, every=timedelta(milliseconds=5), registry=registry)
        while "ephemera_server_memory_bytes" not in {each.metric.name for each in metrics.samples()}:
            await asyncio.sleep(0.005)
        shown = parsed(metrics.render()[0].decode())
        assert shown["orders_total",] == 1
    assert set(parsed(metrics.render()[0].decode())) == {("orders_total",), ("orders_created",)}
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "ephemera-metrics"]
    async with connect(server.url, catalogue) as one, connect(server.url, catalogue) as other:
        StoreMetrics(one, registry=registry)
        with pytest.raises(InvalidDeclaration, match="another store"):
            StoreMetrics(other, registry=registry)
    with pytest.raises(InvalidValue, match="positive"):
        StoreMetrics(store, every=timedelta(0))


def _one(shown: dict[tuple[str, ...], float], name: str) -> float:
    (value,) = [value for labels, value in shown.items() if labels[0] == name]
    return value
