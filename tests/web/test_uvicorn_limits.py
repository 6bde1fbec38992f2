"""What a client may take of a server: the size and time of heads and bodies, responses and connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from ephemera.web import uvicorn_limits

pytestmark = pytest.mark.on_both_loops
LONG = 60.0  # seconds: never within a test
START = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"


async def _echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def _slow(request: Request) -> Response:
    seconds = request.query_params.get("seconds", "0.6")  # longer than the client may take for its body
    await asyncio.sleep(float(seconds))
    return await _echo(request)


async def _held(request: Request) -> Response:
    await request.app.state.release.wait()
    return await _echo(request)


async def _large(_: Request) -> Response:
    return PlainTextResponse("x" * 20_000_000)


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(str(len(await websocket.receive_text())))
    except WebSocketDisconnect:
        return


APP = Starlette(
    routes=[
        Route("/echo", _echo, methods=["GET", "POST"]),
        Route("/slow", _slow, methods=["POST"]),
        Route("/held", _held, methods=["POST"]),
        Route("/large", _large),
        WebSocketRoute("/socket", _socket),
    ]
)


class Client:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send some bytes; a server that has closed does not matter."""
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError:
            return

    async def status(self) -> int:
        """The status of the next response, 0 if the connection was closed instead."""
        try:
            head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 10)
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if length.strip(b"0"):
            await self._reader.readexactly(int(length))
        return int(head.split()[1])


class Server:
    """A running server."""

    def __init__(self, port: int, connections: set[Any], waiting: dict[Any, float]) -> None:
        self.port = port
        self._connections = connections
        self._waiting = waiting
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        """A new connection."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    async def has(self, connections: int) -> None:
        """Wait until it has this many connections."""
        async with asyncio.timeout(20):
            while len(self._connections) != connections:
                await asyncio.sleep(0.01)

    async def is_busy(self, connections: int) -> None:
        """Wait until it has this many connections, all with a request."""
        await self.has(connections)
        async with asyncio.timeout(20):
            while self._waiting:
                await asyncio.sleep(0.01)

    def close(self) -> None:
        """End every connection."""
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Server]:
    """A server with these limits; the others are not reached."""
    patient = {"head_timeout": LONG, "body_grace": LONG, "response_timeout": LONG}
    options = uvicorn_limits(**{**patient, **limits})
    config = uvicorn.Config(
        APP, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, **options
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
        assert not task.done()
    port, waiting = server.servers[0].sockets[0].getsockname()[1], options["http"].args[0].waiting
    running = Server(port, server.server_state.connections, waiting)
    try:
        yield running
    finally:
        running.close()
        server.should_exit = True
        await task


async def test_a_large_head_is_refused() -> None:
    """Many headers, a long header, a long URL, in one piece or in many, get 431 and no more is read."""
    heads = [
        START + b"".join(b"x-%d: y\r\n" % number for number in range(200)) + b"\r\n",
        START + b"x: " + b"y" * 40_000 + b"\r\n\r\n",
        b"GET /echo?" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    async with serving() as server:
        for head in heads:
            client = await server.connect()
            await client.send(head)
            assert await client.status() == 431
        endless = await server.connect()
        await endless.send(START + b"x: ")
        for _ in range(2000):
            if endless.writer.is_closing():
                break
            await endless.send(b"y" * 10_000)
        assert await endless.status() in (0, 431), "a reset may overtake the response"
        usual = await server.connect()
        await usual.send(START + b"x: " + b"y" * 20_000 + b"\r\nContent-Length: 3\r\n\r\nabc")
        assert await usual.status() == 200


async def test_trailers_and_chunk_extensions_are_part_of_the_head() -> None:
    """A chunked body cannot carry an endless extension or trailer; one of small chunks is served."""
    chunked = START + b"Transfer-Encoding: chunked\r\n\r\n"
    async with serving() as server:
        for start in (b"1;x=", b"1\r\na\r\n0\r\nx: "):
            client = await server.connect()
            await client.send(chunked + start)
            for _ in range(100):
                await client.send(b"y" * 10_000)
            assert await client.status() in (0, 431)
        small = await server.connect()
        await small.send(chunked)
        for _ in range(100):
            await small.send(b"1\r\na\r\n" * 100)
        await small.send(b"0\r\n\r\n")
        assert await small.status() == 200


async def test_a_head_must_be_complete_in_time() -> None:
    """Half a head gets 408, including on a connection that was used; without a byte it is closed silently."""
    async with serving(head_timeout=0.2) as server:
        half, silent, used, blank = [await server.connect() for _ in range(4)]
        await half.send(START)
        await used.send(GET)
        await blank.send(GET)
        assert await used.status() == await blank.status() == 200
        await used.send(START)
        await blank.send(b"\r\n")  # allowed before a request
        assert await half.status() == 408
        assert await silent.status() == 0
        assert await used.status() == 408
        assert await blank.status() == 408


async def test_an_idle_connection_is_kept_for_the_keep_alive_time() -> None:
    """The timeout of heads does not apply between two requests."""
    async with serving(head_timeout=0.1) as server:
        client = await server.connect()
        for _ in range(2):
            await client.send(GET)
            assert await client.status() == 200
            await asyncio.sleep(0.3)


async def test_a_body_must_arrive_at_a_rate() -> None:
    """One that stalls or trickles gets 408; time that the application takes does not count."""
    head = START + b"Content-Length: 100000\r\n\r\n"
    async with serving(body_grace=0.3, head_timeout=0.4, min_body_rate=1_000_000) as server:
        stalled = await server.connect()
        await stalled.send(head + b"x")
        assert await stalled.status() == 408
        waiting = await server.connect()
        expect = head.replace(b"/echo", b"/slow") + b""
        await waiting.send(expect.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert await waiting.status() == 100, "the application did not read for longer than the grace"
        await waiting.send(b"x" * 100_000)
        assert await waiting.status() == 200


async def test_a_client_that_takes_no_response_is_disconnected() -> None:
    """It is disconnected after the timeout, and one that reads slowly is not."""
    async with serving(response_timeout=1, head_timeout=2) as server:
        client = await server.connect()
        await client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await server.has(connections=1)
        await server.has(connections=0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client._reader.readexactly(20_000_000)
        slow = await server.connect()
        await slow.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(12):
            await slow._reader.readexactly(1_000_000)
            await asyncio.sleep(0.1)
        await slow._reader.readexactly(8_000_000)


async def test_connections_that_wait_give_way_to_new_ones() -> None:
    """Clients that hold connections do not keep others out; requests in progress are not interrupted."""
    async with serving(max_connections=20) as server:
        busy = await server.connect()
        await busy.send(START + b"Content-Length: 2\r\n\r\nx")
        held = [await server.connect() for _ in range(60)]
        for client in held:
            await client.send(START)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as user:
            assert (await user.get("/echo")).status_code == 200
        await busy.send(b"y")
        assert await busy.status() == 200


async def _serves_a_new_client(server: Server) -> bool:
    client = await server.connect()
    await client.send(GET)
    return await client.status() == 200


async def test_half_bodies_do_not_keep_others_out() -> None:
    """After a second the oldest of them is replaced, and no other; before that a new client gets 503."""
    async with serving(max_connections=3) as server:
        busy = [await server.connect() for _ in range(3)]
        for client in busy:
            await client.send(START + b"Content-Length: 2\r\n\r\nx")
        await server.is_busy(connections=3)
        assert not await _serves_a_new_client(server)
        async with asyncio.timeout(20):
            while not await _serves_a_new_client(server):
                await asyncio.sleep(0.05)
        assert await busy[0].status() == 0
        for client in busy[1:]:
            await client.send(b"y")
            assert await client.status() == 200


async def test_requests_in_progress_are_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """A new client gets 503 while an application answers, or has not asked for a body yet; this is logged."""
    head = b"POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
    release = APP.state.release = asyncio.Event()
    async with serving(max_connections=2) as server:
        answered, held_back = await server.connect(), await server.connect()
        await answered.send(head + b"\r\nx")
        await held_back.send(head + b"Expect: 100-continue\r\n\r\n")
        await server.is_busy(connections=2)
        until = asyncio.get_running_loop().time() + 2  # half a body is replaced after one second
        while asyncio.get_running_loop().time() < until:
            assert not await _serves_a_new_client(server)
            await asyncio.sleep(0.05)
        release.set()
        assert await held_back.status() == 100
        await held_back.send(b"x")
        assert await held_back.status() == await answered.status() == 200
    assert [text for text in caplog.messages if "503" in text] == [
        "answered with 503: all 2 connections are in use"  # one line for all of them
    ]


async def test_pipelined_requests_and_sockets_work() -> None:
    """What worked without limits works with them; a message of a socket is limited."""
    async with serving(head_timeout=0.3, max_message=1000) as server:
        client = await server.connect()
        await client.send((START + b"Content-Length: 3\r\n\r\nabc" + GET) * 10)
        assert {await client.status() for _ in range(20)} == {200}
        async with connect(f"ws://127.0.0.1:{server.port}/socket") as socket:
            await asyncio.sleep(0.5)
            await socket.send("x" * 1000)
            assert await socket.recv() == "1000"
            await socket.send("x" * 1001)
            with pytest.raises(ConnectionClosed):
                await socket.recv()
