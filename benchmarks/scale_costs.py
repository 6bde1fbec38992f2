"""What one request costs, measured here: the figures that `benchmarks.scale_model` multiplies.

CPU of the web process, commands and bytes per request come from the quickstart's service under uvicorn: with
50 browsers, and with 3, which is about what a process at 60 % has in progress. The three operations of a
request are measured alone, too: with 50 tasks, whose commands share writes, and with one, whose commands do
not.
What depends on the number of processes (announcements of changes, published messages) is the difference
between none and 40 clients that listen.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale_load import (
    CATALOGUE,
    LOCAL_PAGES,
    PAGES,
    Profile,
    load_page,
    requests_of,
    sign_in,
)
from benchmarks.servers import Servers
from benchmarks.sessions import CATALOGUE as QUICKSTART
from benchmarks.sessions import HASHES, Session
from benchmarks.uvicorn_process import serve_app
from benchmarks.web import Browser, Requests, connected
from ephemera import Store, connect, embedded
from ephemera.wire import NodeClient, open_client

SECONDS = 4.0
_BROWSERS, _FEW = 50, 3
_LISTENERS = 40
_USERS = 10_000
_CHANGES = 2_000
_PATIENT = "?timeout=10&connect_timeout=30"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Something that is repeated: microseconds of CPU each, and how many commands one write holds."""

    client: float
    server: float
    batch: float


@dataclass(frozen=True)
class Costs:
    """All figures; CPU in microseconds."""

    busy: Cost
    """A request of the quickstart's service, 50 browsers."""
    usual: Cost
    """The same, 3 browsers."""
    commands: float
    bytes_in: float
    bytes_out: float
    """Per request, at the server."""
    user_bytes: float
    """Memory of a user's session, index, limit and profile."""
    data_busy: Cost
    """The three operations alone, without HTTP, 50 tasks."""
    data_quiet: Cost
    """The same, one task."""
    read_busy: Cost
    """One GET of a cached entry, 50 tasks."""
    read_quiet: Cost
    push: Cost
    """One announcement of a change, to one process with local copies."""
    push_bytes: float
    message: Cost
    """One published message, to one subscriber."""


def seconds_of(process: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def info(*servers: embedded.Valkey) -> dict[str, float]:
    """Totals of the servers: CPU seconds, commands, reads of sockets, bytes and memory."""
    names = ("used_memory", "total_reads_processed", "total_net_input_bytes", "total_net_output_bytes")
    totals = dict.fromkeys((*names, "cpu", "commands"), 0.0)
    for server in servers:
        report = str(server.ask("INFO", "everything"))
        facts = dict(line.split(":", 1) for line in report.splitlines() if ":" in line)
        for name in names:
            totals[name] += float(facts[name])
        totals["cpu"] += float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])
        totals["commands"] += float(facts["total_commands_processed"])
    return totals


def _gained(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in after.items()}


async def measure() -> Costs:
    """Measure everything; it takes about a minute."""
    commands, busy, spent = await _service(_BROWSERS)
    _, usual, _ = await _service(_FEW)
    with Servers() as servers:
        url = servers.valkey.url + _PATIENT
        async with connect(url, CATALOGUE) as store:
            before = info(servers.valkey)
            tokens = await sign_in(store, _USERS)
            gained = _gained(before, info(servers.valkey))
            users = list(tokens.items())
            data = [await _repeated(servers, _data(store, users), tasks, commands) for tasks in (50, 1)]
            await store[PAGES].get_or_load(load_page, number=1)
            read = [await _repeated(servers, _reads(store), tasks, 1) for tasks in (50, 1)]
            push, push_bytes = await _pushes(servers.valkey, store)
            message = await _messages(servers.valkey, store)
    return Costs(
        busy=busy,
        usual=usual,
        commands=commands,
        bytes_in=spent["total_net_input_bytes"],
        bytes_out=spent["total_net_output_bytes"],
        user_bytes=gained["used_memory"] / _USERS,
        data_busy=data[0],
        data_quiet=data[1],
        read_busy=read[0],
        read_quiet=read[1],
        push=push,
        push_bytes=push_bytes,
        message=message,
    )


async def _service(browsers: int) -> tuple[float, Cost, dict[str, float]]:
    """Commands per request, its cost, and what else the server counted per request."""
    with Servers() as servers:
        tokens = await quickstart_sessions(servers, browsers)
        async with _served(servers, tokens) as (process, asked):
            load = Requests(asked)
            await load(1.0)
            commands = await _commands(servers.valkey, asked[0])
            before, cpu = info(servers.valkey), seconds_of(process)
            done, until = 0, time.perf_counter() + SECONDS
            while time.perf_counter() < until:
                await load.perform(100)
                done += 100 * browsers
            gained = _gained(before, info(servers.valkey))
            cpu = seconds_of(process) - cpu
        each = {name: value / done for name, value in gained.items()}
        batch = commands / each["total_reads_processed"]
        return commands, Cost(cpu / done * 1e6, each["cpu"] * 1e6, max(1.0, batch)), each


@asynccontextmanager
async def _served(servers: Servers, tokens: list[str]) -> AsyncIterator[tuple[int, list[Browser]]]:
    """The service, its process, and a connected browser for each token."""
    known = _children()
    async with serve_app("benchmarks.quickstart_app:app", servers) as port:
        asked = [await connected(port, *quickstart_request(token)) for token in tokens]
        process = next(iter(_children() - known - {servers.valkey.pid, servers.valkey.supervisor_pid}))
        try:
            yield process, asked
        finally:
            for browser in asked:
                browser.close()


async def quickstart_sessions(servers: Servers, users: int) -> list[str]:
    """The tokens of sessions of that many users of the quickstart's service."""
    names = [f"018e9a1f-b3c2-7654-9abc-{number:012x}" for number in range(users)]
    async with connect(servers.valkey.url, QUICKSTART) as store:
        return [await store[HASHES].create(Session(name)) for name in names]


def quickstart_request(token: str) -> tuple[bytes, bytes]:
    """The request that is repeated, and how its answer ends."""
    lines = ("GET /me HTTP/1.1", "Host: bench", f"Cookie: theme=dark; __Host-session={token}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode(), b'"city":"Riga"}'


def _children() -> set[int]:
    listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(number) for path in listed for number in path.read_text().split()}


async def _commands(server: embedded.Valkey, browser: Browser) -> float:
    """The commands of one request: those that the server executes for a client, not inside a script."""
    requests = 20
    async with open_client(server.url) as client:
        assert isinstance(client, NodeClient)
        sample = asyncio.create_task(client.sample_commands(3, 100_000))
        while "cmd=monitor" not in str(await client.call("CLIENT", "LIST")):
            await asyncio.sleep(0.01)
        await browser.ask(requests)
        lines = await sample
    sent = [
        line for line in lines if b" lua] " not in line and b'"CLIENT"' not in line and b'"PING"' not in line
    ]
    return len(sent) / requests


def _data(store: Store, users: list[tuple[str, str]]) -> Callable[[int], Awaitable[object]]:
    request = requests_of(store, "plain")

    async def one(number: int) -> object:
        user, token = users[number % len(users)]
        return await request(token, user)

    return one


def _reads(store: Store) -> Callable[[int], Awaitable[object]]:
    pages = store[PAGES]
    return lambda _: pages.get_or_load(load_page, number=1)


async def _repeated(
    servers: Servers, operation: Callable[[int], Awaitable[object]], tasks: int, commands: float
) -> Cost:
    """What an operation costs when that many tasks repeat it."""
    done = 0

    async def work(first: int, until: float) -> None:
        nonlocal done
        number = first
        while time.perf_counter() < until:
            await operation(number)
            number += tasks
            done += 1

    async def round_of(seconds: float) -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(work(first, until) for first in range(tasks)))

    await round_of(0.5)
    done, before, cpu = 0, info(servers.valkey), time.process_time()
    await round_of(SECONDS)
    cpu = time.process_time() - cpu
    gained = _gained(before, info(servers.valkey))
    batch = done * commands / gained["total_reads_processed"]
    return Cost(cpu / done * 1e6, gained["cpu"] / done * 1e6, max(1.0, batch))


async def _pushes(server: embedded.Valkey, store: Store) -> tuple[Cost, float]:
    """What an announcement costs each side, and its bytes."""

    async def change() -> None:
        for number in range(_CHANGES):
            await store[LOCAL_PAGES].put(Profile("a", "b"), number=number)

    async def listen(listeners: AsyncExitStack) -> None:
        for _ in range(_LISTENERS):
            other = await listeners.enter_async_context(connect(server.url + _PATIENT, CATALOGUE))
            for _ in range(2):
                await other[LOCAL_PAGES].get_or_load(load_page, number=1)

    return await _per_listener(server, change, listen, _CHANGES)


async def _messages(server: embedded.Valkey, store: Store) -> Cost:
    """What a published message costs each side."""

    async def publish() -> None:
        for _ in range(_CHANGES):
            await store.call("PUBLISH", "scale", "x" * 64)

    async def listen(listeners: AsyncExitStack) -> None:
        for _ in range(_LISTENERS):
            other = await listeners.enter_async_context(open_client(server.url + _PATIENT))
            messages = await listeners.enter_async_context(other.subscribe("scale"))
            task = asyncio.create_task(_consume(messages))
            listeners.callback(task.cancel)

    return (await _per_listener(server, publish, listen, _CHANGES))[0]


async def _consume(messages: object) -> None:
    async for _ in messages:  # type: ignore[attr-defined]
        pass


async def _per_listener(
    server: embedded.Valkey,
    act: Callable[[], Awaitable[None]],
    listen: Callable[[AsyncExitStack], Awaitable[None]],
    times: int,
) -> tuple[Cost, float]:
    """The difference that one listener makes to one act; this process is the client of all of them."""
    found = []
    async with AsyncExitStack() as listeners:
        for _ in range(2):
            await act()
            before, cpu = info(server), time.process_time()
            await act()
            await asyncio.sleep(0.2)
            cpu = time.process_time() - cpu
            found.append((_gained(before, info(server)), cpu))
            if len(found) == 1:
                await listen(listeners)
    (alone, own), (heard, theirs) = found
    pairs = times * _LISTENERS / 1e6
    bytes_each = (heard["total_net_output_bytes"] - alone["total_net_output_bytes"]) / times / _LISTENERS
    cost = Cost(max(0.0, theirs - own) / pairs, max(0.0, heard["cpu"] - alone["cpu"]) / pairs, 1.0)
    return cost, bytes_each
