"""Spans: one for each command and script, named by pattern, never by key, and only if requested."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ephemera.embedded import Cluster, Valkey
from ephemera.errors import InvalidDeclaration, ServerError
from ephemera.keyspace import Store, connect
from ephemera.operations.metrics import trace
from tests.operations.metrics_fixtures import (
    GREETING,
    INGEST,
    LIMITS,
    NEWS,
    PROFILE,
    SEARCH,
    VIEWS,
    Profile,
    catalogue,
)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Where spans end up."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    """A provider of the real SDK."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(spans))
    return made


@pytest.fixture
async def store(server: Valkey, provider: TracerProvider) -> AsyncIterator[Store]:
    """A store that is traced."""
    async with connect(server.url, catalogue) as opened:
        trace(opened, provider)
        yield opened


async def test_commands_and_scripts_are_spans_by_pattern(
    store: Store, spans: InMemorySpanExporter, key: str
) -> None:
    """Each has the operation and the pattern of its key as its name, and the conventions' attributes."""
    await store[GREETING].put("hello", user_id=key)
    await store[GREETING].get(user_id=key)
    async with store[INGEST].hold(schema=key):
        pass
    await store[PROFILE].put(Profile("Ada"), user_id=key)
    await store[LIMITS].check(SEARCH.on(key))
    ended = {span.name: span for span in spans.get_finished_spans()}
    assert ended.keys() >= {
        "SET greeting:{user_id}",
        "GET greeting:{user_id}",
        "locks_acquire lock:ingest:{schema}",
        "locks_release lock:ingest:{schema}",
        "keyspace_replace profile:{user_id}",
        "rate_limits_take limit:search:{subject}:{window_start}",
    }
    read = ended["GET greeting:{user_id}"]
    assert read.kind is SpanKind.CLIENT
    assert read.attributes == {
        "db.system.name": "redis",
        "db.operation.name": "GET",
        "db.collection.name": "greeting:{user_id}",
    }
    assert not any(key in span.to_json() for span in ended.values())


async def test_spans_are_under_the_callers_own(
    store: Store, spans: InMemorySpanExporter, provider: TracerProvider, key: str
) -> None:
    """What a request sends belongs to its span, even from tasks that run at once."""
    tracer = provider.get_tracer("test")

    async def request(number: int) -> None:
        with tracer.start_as_current_span(f"request {number}"):
            await store[GREETING].get(user_id=f"{key}-{number}")

    await asyncio.gather(request(1), request(2))
    ended = spans.get_finished_spans()
    requests = {span.context.span_id for span in ended if span.name.startswith("request")}
    parents = {span.parent.span_id for span in ended if span.name.startswith("GET") and span.parent}
    assert parents == requests
    assert len(parents) == 2


async def test_an_error_is_recorded_by_its_kind(store: Store, spans: InMemorySpanExporter, key: str) -> None:
    """A refused command ends its span as an error, without the text, which may contain a key."""
    await store.call("SET", key, "text")
    with pytest.raises(ServerError):
        await store.call("INCR", key)
    failed = spans.get_finished_spans()[-1]
    assert (failed.name, failed.status.status_code) == ("INCR", StatusCode.ERROR)
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ERR"
    assert not failed.events
    assert key not in failed.to_json()


async def test_a_cancelled_caller_ends_its_span(store: Store, spans: InMemorySpanExporter, key: str) -> None:
    """A cancelled call ends its span."""
    calling = asyncio.ensure_future(store.call("GET", key))
    calling.cancel()
    await asyncio.sleep(0)
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["error.type"] == "CancelledError"


async def test_blocking_commands_are_spans_too(store: Store, spans: InMemorySpanExporter, key: str) -> None:
    """A command that waits on a connection of its own ends its span with its reply."""
    assert await store.call("BLPOP", key, 0.01) is None
    assert [span.name for span in spans.get_finished_spans()] == ["BLPOP"]


async def test_on_a_cluster(
    cluster: Cluster, provider: TracerProvider, spans: InMemorySpanExporter, key: str
) -> None:
    """The same on a cluster, whose commands go to several nodes."""
    async with connect(cluster.url, catalogue) as store:
        trace(store, provider)
        await store[GREETING].put_many([({"user_id": f"{key}-{number}"}, "hi") for number in range(10)])
    assert [span.name for span in spans.get_finished_spans()] == ["SET greeting:{user_id}"] * 10


async def test_additions_that_leave_together_are_one_span(store: Store, spans: InMemorySpanExporter) -> None:
    """Counters are sent by the script, and those who share it share its span, even when it fails."""
    await asyncio.gather(*(store[VIEWS].add(page=page, views=1) for page in "abc"))
    with pytest.raises(ServerError):
        await store[VIEWS].add(page="a", views=2**53 - 1)
    added, failed = spans.get_finished_spans()
    assert added.name == failed.name == f"write_behind_count {VIEWS.pending.pattern}"
    assert (added.status.status_code, failed.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)


async def test_what_is_made_again_by_itself_belongs_to_its_caller(
    store: Store, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    """Additions that were refused together are sent one by one, under the span that they were made in."""
    await store[VIEWS].add(page="full", views=2**53 - 1)
    spans.clear()
    with provider.get_tracer("test").start_as_current_span("request") as request:
        adding = (store[VIEWS].add(page=page, views=1) for page in ("a", "full", "b"))
        await asyncio.gather(*adding, return_exceptions=True)
    counts = [span for span in spans.get_finished_spans() if span.name.startswith("write_behind_count")]
    assert len(counts) == 4
    assert {span.parent.span_id for span in counts if span.parent} == {request.get_span_context().span_id}


class _Failing(SpanProcessor):
    """What raises at the start or at the end of a span, as an exporter with a mistake in it may."""

    def __init__(self, when: str) -> None:
        self._when = when

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self._when == "start" and "write_behind_count" in span.name:
            raise ValueError("at the start")

    def on_end(self, span: ReadableSpan) -> None:
        if self._when == "end" and "write_behind_count" in span.name:
            raise ValueError("at the end")


@pytest.mark.parametrize("when", ["start", "end"])
async def test_a_failing_exporter_affects_no_reply(
    server: Valkey, provider: TracerProvider, when: str, key: str
) -> None:
    """Every caller gets its reply, even those that share the connection."""
    provider.add_span_processor(_Failing(when))
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, report: reports.append(str(report["exception"])))
    async with connect(server.url, catalogue) as store, asyncio.timeout(60):
        trace(store, provider)
        connections = store.client("queue").connection_count
        adding = [asyncio.ensure_future(store[VIEWS].add(page=page, views=1)) for page in "ab"]
        calls = [asyncio.ensure_future(store.call("SET", key, "x", "EX", 60)) for _ in range(3)]
        outcomes = await asyncio.gather(*adding, return_exceptions=True)
        assert await asyncio.gather(*calls) == [b"OK"] * 3
        assert store.client("queue").connection_count == connections
    if when == "start":
        assert [str(outcome) for outcome in outcomes] == ["at the start"] * 2
        assert not reports
    else:
        assert outcomes == [True, True]
        assert reports == ["at the end"]


@pytest.mark.standalone("a cluster's call is not that of one connection")
async def test_an_untraced_store_has_no_overhead(server: Valkey) -> None:
    """Without `trace`, a store's call is the connection's own."""
    async with connect(server.url, catalogue) as store:
        client = store.client("cache")
        assert store.call is client.call
        assert store.call == client.link.call  # type: ignore[attr-defined]


async def test_a_store_in_use_cannot_be_traced(server: Valkey, provider: TracerProvider) -> None:
    """An accessor bound earlier would bypass the spans, so tracing is refused."""
    async with connect(server.url, catalogue) as store:
        store[NEWS]
        with pytest.raises(InvalidDeclaration, match="in use already"):
            trace(store, provider)
