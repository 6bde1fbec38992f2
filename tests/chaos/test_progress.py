"""Progress while servers die: each client gets every event once and in order, or a `Missed`."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ephemera import Store, connect, embedded
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.progress import Listener, Missed
from ephemera.wire import key_slot
from tests.chaos.replication import caught_up
from tests.chaos.slot_moves import owner
from tests.patterns.progress_fixtures import CATALOGUE, PROGRESS, Done, JobDatabase, SlideDone, collect, shown
from tests.web.event_source import opened
from tests.wire.conditions import answered, eventually

CLIENTS = 500
EVENTS = 150
_BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError)


class Service:
    """A web process."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.web.streaming_app", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self._process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Stop it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(30)


class Client:
    """Reads a job's events, disconnects now and then, and reconnects to another process with its last id."""

    def __init__(self, services: list[Service], chance: random.Random) -> None:
        self.got: list[str] = []  # ids, and 'missed' for a `Missed`
        self.numbers: dict[str, bytes] = {}
        self._services = services
        self._chance = chance
        self._last: str | None = None

    async def run(self, job: str) -> None:
        """Read until the end."""
        while True:
            stays = self._chance.randint(1, 40)
            try:
                async with opened(
                    self._chance.choice(self._services).port, f"/jobs/{job}/events", self._last
                ) as response:
                    if response.status == 204:
                        return
                    async for event in response:
                        if event.name == "end":
                            return
                        if event.name == ":":
                            continue
                        self._last = event.id
                        self.got.append("missed" if event.name == "snapshot" else event.id)
                        self.numbers[event.id] = event.data
                        stays -= 1
                        if not stays:
                            break
            except _BROKEN:
                await asyncio.sleep(0.05)


class Writer:
    """Appends numbered events, each once, and knows the order of entries."""

    def __init__(self, store: Store, job: str) -> None:
        self.before: dict[str, str] = {}
        self.written: list[str] = []
        self.unsure = False
        self._store, self._job = store, job
        self._last: str | None = None

    async def add(self, number: int) -> None:
        """Append one event; one with an unknown outcome is not repeated."""
        try:
            entry_id = await self._store[PROGRESS].append(SlideDone(number), job_id=self._job)
        except (ConnectionFailed, ServerError):
            self._last, self.unsure = None, True
        else:
            if self._last is not None:
                self.before[entry_id] = self._last
            self._last = entry_id
            self.written.append(entry_id)


def _place(entry_id: str) -> tuple[int, int]:
    n, stamp = entry_id.split("-")
    return int(n), int(stamp)


def _verify(client: Client, writer: Writer) -> None:
    """Check that events are in order and complete, except where the client got a `Missed`."""
    seen: set[str] = set()
    previous: str | None = None
    for entry_id in client.got:
        if entry_id == "missed":
            previous = None
            continue
        assert entry_id not in seen
        if previous is not None:
            assert _place(entry_id)[0] == _place(previous)[0] + 1
            assert _place(entry_id)[1] > _place(previous)[1]
            assert writer.before.get(entry_id, previous) == previous
        elif not seen and "missed" not in client.got:
            assert _place(entry_id)[0] == 1
        seen.add(entry_id)
        previous = entry_id


def _close(services: list[Service]) -> None:
    for each in services:
        each.close()


def _restart(server: Valkey) -> None:
    server.kill()
    server.restart()


def _restart_empty(server: Valkey) -> None:
    server.kill()
    (server.data / "dump.rdb").unlink(missing_ok=True)
    server.restart()


def _hang(server: Valkey) -> None:
    server.pause()
    time.sleep(1.5)  # as long as every client needs to notice it
    server.resume()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("config", "crash"),
    [
        pytest.param({"appendonly": "yes", "appendfsync": "always"}, _restart, id="data kept"),
        pytest.param({}, _restart_empty, id="data gone"),
        pytest.param({}, _restart, id="older copy"),
        pytest.param({}, _hang, id="hung for a while"),
    ],
)
async def test_reconnecting_clients_get_every_event_or_a_missed(
    tmp_path: Path, config: dict[str, str], crash: Callable[[Valkey], None]
) -> None:
    """500 clients reconnect between two web processes while one of them and Redis are killed."""
    chance = random.Random(7)
    job = "j1"
    with ExitStack() as running:
        server = running.enter_context(embedded.valkey(data=tmp_path / "data", config=config))
        services = [Service(server.url), Service(server.url)]
        running.callback(lambda: _close(services))
        async with connect(server.url, CATALOGUE) as store:
            writer = Writer(store, job)
            clients = [Client(services, random.Random(chance.random())) for _ in range(CLIENTS)]
            reading = [asyncio.create_task(client.run(job)) for client in clients]
            for number in range(EVENTS):
                await writer.add(number)
                await asyncio.sleep(0.02)
                if number == EVENTS // 4:
                    server.ask("SAVE")
                if number == EVENTS // 3:
                    services[0].kill()
                    services[0] = await asyncio.to_thread(Service, server.url)
                if number == EVENTS // 2:
                    await asyncio.to_thread(crash, server)
                    await answered(lambda: store.call("PING"), within=90)
            await store[PROGRESS].append(Done(EVENTS), job_id=job)
            await asyncio.wait_for(asyncio.gather(*reading), 120)
    numbers: dict[str, bytes] = {}
    for client in clients:
        _verify(client, writer)
        for entry_id, data in client.numbers.items():
            if not data.startswith(b'{"recovered"'):
                assert numbers.setdefault(entry_id, data) == data
    whole = [client for client in clients if "missed" not in client.got]
    if config or crash is _hang:
        # Only clients that asked while Redis was down may have got a `Missed`.
        assert len(whole) > 0
        every = [*range(1, len(whole[0].got) + 1)]
        assert all([_place(each)[0] for each in client.got] == every for client in whole)
    else:
        # Every client that read before and after the crash noticed what it missed.
        assert all("missed" in client.got for client in clients if _was_there(client))


def _was_there(client: Client) -> bool:
    """Whether a client read an entry that was lost later, and one that followed it."""
    entries = [_place(each) for each in client.got if each != "missed"]
    numbers = [n for n, _ in entries]
    return len(numbers) != len(set(numbers))  # the same number in two histories


async def test_a_hung_server_costs_a_listener_only_time(victim: Valkey) -> None:
    """While the server hangs, a new listener gets a snapshot and others wait; all get every event later."""
    truth = JobDatabase()
    async with connect(victim.url, CATALOGUE) as store, connect(victim.url, CATALOGUE) as writing:
        progress = store[PROGRESS]
        await progress.append(SlideDone(0), job_id="hung")
        early = progress.listen(job_id="hung", snapshot=truth.snapshot)
        assert shown(await anext(early)) == 0
        listening = asyncio.create_task(collect(early))
        victim.pause()
        async with asyncio.timeout(60), progress.listen(job_id="other", snapshot=truth.snapshot) as updates:
            assert isinstance(await anext(updates), Missed)
        late = progress.listen(job_id="hung", snapshot=truth.snapshot)
        assert isinstance(await anext(late), Missed)
        victim.resume()
        await answered(lambda: writing.call("PING"), within=60)
        for number in (1, 2):
            await writing[PROGRESS].append(SlideDone(number), job_id="hung")
        await writing[PROGRESS].append(Done(3), job_id="hung")
        async with asyncio.timeout(60), late:
            assert [shown(update) async for update in late] == [0, 1, 2, "done"]
            assert await listening == [1, 2, "done"]


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_listeners_follow_a_fail_over(kind: str) -> None:
    """When the stream's master dies, existing and new listeners get each event once, in order."""
    truth, job = JobDatabase(), "over"
    with (
        embedded.sentinel(down_after=500) if kind == "sentinel" else embedded.cluster(node_timeout=1000) as at
    ):
        if isinstance(at, embedded.Cluster):
            await asyncio.sleep(2.5)  # a master that has just started refuses to vote
            master = owner(at, key_slot(PROGRESS.key(job_id=job)))
        else:
            master = at.master
        async with connect(at.url, CATALOGUE) as store, connect(at.url, CATALOGUE) as writing:
            for number in range(3):
                await writing[PROGRESS].append(SlideDone(number), job_id=job)
            early = store[PROGRESS].listen(job_id=job, snapshot=truth.snapshot)
            assert await collect_some(early, 3) == [0, 1, 2]
            await caught_up(master)
            await asyncio.to_thread(master.kill)
            await answered(lambda: writing[PROGRESS].append(SlideDone(3), job_id=job), within=90)
            late = asyncio.create_task(collect(store[PROGRESS].listen(job_id=job, snapshot=truth.snapshot)))
            await writing[PROGRESS].append(Done(4), job_id=job)
            async with asyncio.timeout(60):
                assert [shown(update) async for update in early] == [3, "done"]
                assert [each for each in await late if not isinstance(each, dict)] == [0, 1, 2, 3, "done"]


async def collect_some(listener: Listener[Any], count: int) -> list[object]:
    """The first updates of a listener that continues."""
    return [shown(await anext(listener)) for _ in range(count)]


async def test_listeners_get_the_state_from_sql_without_a_server(victim: Valkey) -> None:
    """While Redis is down, a listener gets the state at once, and the end as soon as SQL has it."""
    truth = JobDatabase()
    async with connect(victim.url, CATALOGUE) as store:
        victim.kill()
        await eventually(lambda: not store.client().up)
        async with store[PROGRESS].listen(job_id="down", snapshot=truth.snapshot) as updates:
            first = await anext(updates)
            assert isinstance(first, Missed)
            assert not first.is_last
        truth.ended = True
        listener = store[PROGRESS].listen(job_id="down", after=first.id, snapshot=truth.snapshot)
        assert await collect(listener) == [{"job": "down", "slides": 0}]
        with pytest.raises(ConnectionFailed):
            await store[PROGRESS].append(SlideDone(0), job_id="down")
