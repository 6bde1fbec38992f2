"""Progress over HTTP: server-sent events and WebSockets, on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from fastapi import FastAPI
from websockets.asyncio.client import connect as open_socket

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.progress import ENDED
from ephemera.web import last_event_id
from tests.patterns.progress_fixtures import CATALOGUE, PROGRESS, SHORT, Done, JobDatabase, SlideDone
from tests.untyped import untyped
from tests.web.event_source import opened
from tests.web.streaming_app import application, serving
from tests.wire.conditions import eventually


class Service(NamedTuple):
    """The service under test, with its store and its source of truth."""

    port: int
    store: Store
    truth: JobDatabase
    app: FastAPI


@asynccontextmanager
async def _service(url: str) -> AsyncIterator[Service]:
    truth = JobDatabase()
    async with connect(url, CATALOGUE) as store:
        app = application(store, truth)
        async with serving(app) as port:
            yield Service(port, store, truth, app)


@pytest.fixture
async def service(server: Valkey) -> AsyncIterator[Service]:
    """A service on a real port."""
    async with _service(server.url) as running:
        yield running


async def test_events_are_sent_as_they_happen(service: Service) -> None:
    """Past and new events arrive with their ids, then the end, with headers against buffering."""
    live = service.store[PROGRESS]
    first = await live.append(SlideDone(0), job_id="sse-1")
    async with opened(service.port, "/jobs/sse-1/events") as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        assert await anext(response) == ("message", first, b'{"type":"slide_completed","number":0}')
        assert response.retry is not None
        assert 1000 <= response.retry <= 3000
        second = await live.append(SlideDone(1), job_id="sse-1")
        assert (await anext(response)).id == second
        last = await live.append(Done(2), job_id="sse-1")
        assert [event async for event in response] == [
            ("message", last, b'{"type":"generation_done","slides":2}'),
            ("end", ENDED, b"{}"),
        ]


async def test_a_browser_that_reconnects_continues(service: Service) -> None:
    """Events after `Last-Event-ID` are sent, or after the query's id without the header."""
    live = service.store[PROGRESS]
    ids = [await live.append(SlideDone(number), job_id="sse-2") for number in range(4)]
    path = "/jobs/sse-2/events"
    async with opened(service.port, path, ids[1]) as response:
        assert (await anext(response)).id == ids[2]
    async with opened(service.port, f"{path}?last_event_id={ids[0]}") as response:
        assert (await anext(response)).id == ids[1]
    async with opened(service.port, f"{path}?last_event_id={ids[0]}", ids[2]) as response:
        assert (await anext(response)).id == ids[3]


async def test_missed_events_are_replaced_by_a_snapshot(service: Service) -> None:
    """A client whose stream expired gets `recovered: false` and the state, then new events."""
    service.truth.slides = 5
    async with opened(service.port, "/jobs/sse-3/events", "5-17") as response:
        snapshot = await anext(response)
        assert snapshot.name == "snapshot"
        expected = {"recovered": False, "ended": False, "state": {"job": "sse-3", "slides": 5}}
        assert json.loads(snapshot.data) == expected
        entry_id = await service.store[PROGRESS].append(SlideDone(5), job_id="sse-3")
        assert (await anext(response)).id == entry_id


async def test_a_client_that_has_the_end_gets_204(service: Service) -> None:
    """204 stops a browser from reconnecting: after the end, a final snapshot, or the last event."""
    live = service.store[PROGRESS]
    last = await live.append(Done(0), job_id="sse-4")
    for last_id in (ENDED, last):
        async with opened(service.port, "/jobs/sse-4/events", last_id) as response:
            assert response.status == 204
    service.truth.ended = True
    async with opened(service.port, "/jobs/sse-5/events", "9-9") as response:
        got = [event async for event in response]
    assert [(event.name, event.id) for event in got] == [("snapshot", ENDED), ("end", ENDED)]


async def test_a_quiet_connection_gets_heartbeats(service: Service) -> None:
    """Comments are sent when there are no events."""
    await service.store[SHORT].append(SlideDone(0), job_id="sse-6")
    async with opened(service.port, "/short/sse-6/events") as response:
        assert (await anext(response)).name == "message"
        for _ in range(3):
            async with asyncio.timeout(60):
                assert (await anext(response)).name == ":"


async def test_the_listener_of_a_disconnected_client_is_closed(service: Service) -> None:
    """When a client disconnects, its listener is closed without waiting for an event."""
    live = service.store[PROGRESS]
    await live.append(SlideDone(0), job_id="sse-7")
    async with opened(service.port, "/jobs/sse-7/events") as response:
        await anext(response)
        assert live._watcher._streams
    await eventually(lambda: not live._watcher._streams)


async def test_a_client_that_does_not_read_buffers_nothing(service: Service) -> None:
    """A client that stops reading does not delay others, and its events are not buffered."""
    live = service.store[SHORT]
    await live.append(SlideDone(0), job_id="sse-8")
    async with (
        opened(service.port, "/short/sse-8/events") as idle,
        opened(service.port, "/short/sse-8/events") as quick,
    ):
        await anext(idle)
        await anext(quick)
        for number in range(1, 300):
            await live.append(SlideDone(number), job_id="sse-8")
            while (await anext(quick)).data != b'{"type":"slide_completed","number":%d}' % number:
                pass
        (stream,) = live._watcher._streams.values()
        assert len(stream.mirror.entries) == 3


async def test_a_websocket_gets_the_same_events(service: Service) -> None:
    """Past and new events arrive as JSON texts, and the end closes the connection with 1000."""
    live = service.store[PROGRESS]
    first = await live.append(SlideDone(0), job_id="ws-1")
    async with open_socket(f"ws://127.0.0.1:{service.port}/jobs/ws-1/ws") as socket:
        expected = {"id": first, "event": {"type": "slide_completed", "number": 0}}
        assert json.loads(await socket.recv()) == expected
        last = await live.append(Done(1), job_id="ws-1")
        assert json.loads(await socket.recv())["id"] == last
        await socket.wait_closed()
        assert (socket.close_code, socket.close_reason) == (1000, ENDED)


async def test_a_websocket_that_reconnects_continues(service: Service) -> None:
    """Events after `?last_event_id=` are sent, or a snapshot where some are missing."""
    live = service.store[PROGRESS]
    ids = [await live.append(SlideDone(number), job_id="ws-2") for number in range(3)]
    base = f"ws://127.0.0.1:{service.port}/jobs/ws-2/ws?last_event_id="
    async with open_socket(base + ids[0]) as socket:
        assert json.loads(await socket.recv())["id"] == ids[1]
    async with open_socket(base + "7-7") as socket:
        snapshot = json.loads(await socket.recv())
        assert snapshot["recovered"] is False
        assert snapshot["state"] == {"job": "ws-2", "slides": 0}
        assert json.loads(await socket.recv())["id"] == ids[0]
    await eventually(lambda: not live._watcher._streams)


async def test_a_closing_store_does_not_send_the_end(server: Valkey) -> None:
    """A server that restarts ends responses without `end`, and WebSockets with 1012, so clients reconnect."""
    async with _service(server.url) as service:
        await service.store[PROGRESS].append(SlideDone(0), job_id="sse-9")
        async with (
            opened(service.port, "/jobs/sse-9/events") as response,
            open_socket(f"ws://127.0.0.1:{service.port}/jobs/sse-9/ws") as socket,
        ):
            await anext(response)
            await socket.recv()
            await service.store.aclose()
            assert [event async for event in response if event.name != ":"] == []
            await socket.wait_closed()
            assert socket.close_code == 1012


def test_the_openapi_document_shows_the_events() -> None:
    """The route's responses are documented: the stream of events, and 204."""
    app = application(untyped(None), JobDatabase())
    answers = app.openapi()["paths"]["/jobs/{job_id}/events"]["get"]["responses"]
    assert "text/event-stream" in answers["200"]["content"]
    assert "204" in answers


@pytest.mark.parametrize("value", [b"", b"\xff"])
def test_any_bytes_in_the_header_are_accepted(value: bytes) -> None:
    """A header is never an error; an empty one is ignored."""
    found = last_event_id({"headers": [(b"last-event-id", value)], "query_string": b"last_event_id=1-2"})
    assert found == ("\xff" if value else "1-2")
