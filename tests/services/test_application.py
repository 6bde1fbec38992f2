"""What every service shares: problem documents, request ids, health, bounded bodies, and being mounted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
import uvloop
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, SecretStr
from sqlalchemy import MetaData, event, text
from starlette.applications import Starlette

from ephemera import Catalogue
from ephemera.cli import JsonFormatter
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import LockTimeout
from ephemera_services.runtime import (
    Resources,
    Secret,
    ServiceDefinition,
    ServiceSettings,
    bind_sockets,
    configure_logging,
    create_application,
    problem,
    problems,
)


class Order(BaseModel):
    """What the shop takes."""

    item: str
    password: SecretStr


router = APIRouter()


@router.post("/orders", responses=problems(404))
async def order(wanted: Order) -> str:
    """Order something."""
    if wanted.item == "nothing":
        raise problem(404, "There is nothing.")
    if wanted.item == "locked":
        raise LockTimeout("lock:canary", 10.0, "another process", 1)
    if wanted.item == "trouble":
        raise RuntimeError(wanted.password.get_secret_value())
    return wanted.item


@router.get("/orders")
async def orders() -> list[str]:
    """No orders."""
    return []


@asynccontextmanager
async def shop(resources: Resources) -> AsyncIterator[str]:
    """The service itself, which has nothing."""
    yield "shop"


SERVICE = ServiceDefinition(
    "shop", "Sells things.", Catalogue("shop"), MetaData(schema="shop"), {"/large": 10**6}
)


@pytest.fixture
def app(valkey: Valkey, postgres: Postgres) -> FastAPI:
    """The application of a small service."""
    settings = ServiceSettings(url=Secret(valkey.url), database_url=Secret(postgres.url))
    return create_application(settings, SERVICE, shop, router)


@asynccontextmanager
async def asking(app: FastAPI, under: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """A client of a running application, perhaps mounted under a prefix."""
    whole: Any = app
    if under:
        whole = Starlette()
        whole.mount(under, app)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=whole, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://localhost{under}") as client:
            yield client


@pytest.mark.parametrize("under", ["", "/shop"])
async def test_every_error_is_a_problem(app: FastAPI, under: str) -> None:
    """404, 405 with all methods, 413, 422, 500 and 503 are problem documents, mounted or not."""
    async with asking(app, under) as client:
        answers = {
            404: await client.get("/nowhere"),
            405: await client.delete("/orders"),
            413: await client.post("/orders", content=b"x" * 70_000),
            422: await client.post("/orders", json={"item": 5}),
            500: await client.post("/orders", json={"item": "trouble", "password": "canary"}),
            503: await client.post("/orders", json={"item": "locked", "password": "x"}),
        }
        for status, answer in answers.items():
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status
            assert answer.headers["x-request-id"]
        assert answers[405].headers["allow"] == "GET, POST"
        assert answers[500].headers["x-request-id"] in answers[500].json()["detail"]
        assert "canary" not in answers[500].text + answers[503].text
        missing = await client.post("/orders", json={"item": "nothing", "password": "x"})
        assert missing.json()["detail"] == "There is nothing."


async def test_invalid_input_is_reported_without_repeating_it(app: FastAPI) -> None:
    """The problem says where the error is, and does not repeat the input, which may be a password."""
    async with asking(app) as client:
        answer = await client.post("/orders", json={"item": ["canary"], "password": ["canary"]})
        assert "canary" not in answer.text
        assert [each["at"] for each in answer.json()["errors"]] == ["body.item", "body.password"]


async def test_a_request_keeps_the_id_it_came_with(app: FastAPI) -> None:
    """A plain id is passed back; one that could forge a log line, or is too long, is replaced."""
    async with asking(app) as client:
        for given, kept in (("abc-123.X_y", True), ("a b", False), ("x" * 65, False), ('"}{', False)):
            answer = await client.get("/orders", headers={"x-request-id": given})
            assert (answer.headers["x-request-id"] == given) == kept
        one, other = await client.get("/orders"), await client.get("/orders")
        assert one.headers["x-request-id"] != other.headers["x-request-id"]


async def test_a_chunked_body_is_cut_off_at_its_limit(app: FastAPI) -> None:
    """Without a Content-Length a body is refused as soon as it is too large."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"x" * 10_000

    async with asking(app) as client:
        answer = await client.post("/orders", content=endless())
        assert answer.status_code == 413
        assert sent <= 8


async def test_an_unexpected_error_is_logged_without_its_text(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has where it happened and whose request it was; an error's text may hold anything."""
    with caplog.at_level(logging.INFO):
        async with asking(app) as client:
            await client.post("/orders", json={"item": "trouble", "password": "canary"})
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert any('"type":"builtins.RuntimeError"' in line and "test_application.py" in line for line in lines)
    assert "canary" not in "".join(lines)


def test_a_log_outlives_a_stderr_that_was_replaced_for_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is logged goes to the stderr of that moment, even when the one of the start is closed."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        with monkeypatch.context() as replaced, io.StringIO() as short_lived:
            replaced.setattr(sys, "stderr", short_lived)
            configure_logging("warning")
        logging.getLogger("ephemera.test").warning("still logged")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    said = capsys.readouterr().err
    assert '"message":"still logged"' in said
    assert "Logging error" not in said


def test_a_crowd_is_let_in_within_a_few_turns() -> None:
    """Who waits at the door is accepted many at a time, where the loop alone takes one in each turn."""
    with contextlib.ExitStack() as opened:
        config = uvicorn.Config(FastAPI(), port=0)
        alone = opened.enter_context(config.bind_socket())
        ours = [opened.enter_context(each) for each in bind_sockets(config)]
        assert uvloop.run(_turns(ours)) * 4 <= uvloop.run(_turns([alone]))


async def _turns(sockets: list[socket.socket], crowd: int = 200) -> int:
    """Turns of the loop until a whole crowd is in."""
    inside: list[asyncio.BaseTransport] = []

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            inside.append(transport)

    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Door, sock=each, backlog=crowd) for each in sockets]
    place = sockets[0].getsockname()
    turns = 0
    with contextlib.ExitStack() as waiting:
        for _ in range(crowd):
            waiting.enter_context(socket.create_connection(place))
        while len(inside) < crowd:
            assert turns < 10_000
            turns += 1
            await asyncio.sleep(0)
        for transport in inside:
            transport.close()
    for server in servers:
        server.close()
    return turns


async def test_many_connections_do_not_stop_the_service_for_the_collector(app: FastAPI) -> None:
    """What requests on thousands of open connections leave until the next one is no reason to look at all."""
    async with asking(app) as client:
        await client.get("/healthz")
        full = gc.get_stats()[2]["collections"]
        held: list[list[dict[str, object]]] = []
        for _ in range(20):  # as often as 5,000 connections exchange their state in 80 s
            held = [[{"headers": []} for _ in range(20)] for _ in range(5_000)]
        assert len(held) == 5_000
        assert gc.get_stats()[2]["collections"] - full <= 2


async def test_readiness_follows_the_servers(app: FastAPI, valkey: Valkey) -> None:
    """Alive whatever happens; without Redis degraded; with both ready."""
    async with asking(app) as client:
        assert (await client.get("/readyz")).json()["status"] == "ready"
        valkey.kill()
        try:
            assert (await _until(client, lambda answer: answer.json()["status"] == "degraded")).json() == {
                "status": "degraded",
                "redis": "down",
                "sql": "up",
                "unavailable": [f"cache and queue: {valkey.url.rpartition('@')[2]}"],
            }
            assert (await client.get("/healthz")).json() == {"status": "ok"}
        finally:
            valkey.restart()


async def test_readiness_knows_a_lost_server_at_once(app: FastAPI, valkey: Valkey) -> None:
    """An answer that is shared for a second does not say that a server is up whose connection has ended."""
    async with asking(app) as client:
        [node] = app.state.resources.store.client("cache").nodes()
        assert (await client.get("/readyz")).json()["redis"] == "up"
        valkey.kill()
        try:
            async with asyncio.timeout(20):
                while node.up:
                    await asyncio.sleep(0.001)
            assert (await client.get("/readyz")).json()["redis"] == "down"
        finally:
            valkey.restart()


async def test_without_sql_a_service_is_not_ready(app: FastAPI, postgres: Postgres) -> None:
    """A database that refuses connections makes it 503 with Retry-After, and it recovers by itself."""
    async with asking(app) as client:
        async with app.state.resources.engine.connect() as sql:
            await sql.execute(text("SELECT 1"))
        postgres.pause()
        try:
            answer = await _until(client, lambda answer: answer.status_code == 503)
            assert int(answer.headers["retry-after"]) >= 1
        finally:
            postgres.resume()
        await _until(client, lambda answer: answer.status_code == 200)


async def test_requests_for_readiness_share_one_check(app: FastAPI) -> None:
    """However many there are, SQL is asked once per second."""
    asked: list[object] = []
    async with asking(app) as client:
        engine = app.state.resources.engine.sync_engine
        event.listen(engine, "before_cursor_execute", lambda *query: asked.append(query[2]))
        began = time.monotonic()
        for _ in range(10):
            answers = await asyncio.gather(*(client.get("/readyz") for _ in range(20)))
            assert {each.status_code for each in answers} == {200}
        assert 1 <= len(asked) <= 1 + (time.monotonic() - began)


async def _until(client: httpx.AsyncClient, wanted: Callable[[httpx.Response], bool]) -> httpx.Response:
    """The first answer about readiness that is as wanted; one is shared for a second."""
    async with asyncio.timeout(60):
        while not wanted(answer := await client.get("/readyz")):
            await asyncio.sleep(0.05)
    return answer


async def test_embedded_servers_start_where_none_are_named() -> None:
    """Without URLs a service has a Valkey and a PostgreSQL of its own."""
    async with asking(create_application(ServiceSettings(), SERVICE, shop, router)) as client:
        assert (await client.get("/readyz")).json()["status"] == "ready"


async def test_the_document_names_what_follows_from_a_routes_form(app: FastAPI) -> None:
    """A route with a body has 400, 413, 422 and 503 besides its own; one without has only 503."""
    paths = app.openapi()["paths"]
    assert list(paths["/orders"]["post"]["responses"]) == ["200", "400", "404", "413", "422", "503"]
    assert list(paths["/orders"]["get"]["responses"]) == ["200", "503"]
    assert list(paths["/healthz"]["get"]["responses"]) == ["200"]
