"""The part of the scale that one machine has: 6 masters, 16 client processes, and what operators do to them.

Each process repeats the data of a request (see `benchmarks.scale_load`) with eight tasks. Measured are: even
load; half of the reads on one shared page, from the server and through local copies; a resharding that moves
256 slots; and a restart of every node behind a planned fail-over, on a cluster with replicas.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.scale_costs import info
from benchmarks.scale_load import CATALOGUE, PAGES, load_page, sign_in
from ephemera import connect, embedded
from ephemera.embedded import LOOPBACK, Cluster, Valkey

MASTERS = 6
PROCESSES = 16
TASKS = 8
SECONDS = 8.0
EVEN, HOT, LOCAL = "even load", "half of the reads on one page", "the same through local copies"
"""Phases that the model is compared with."""
_USERS = 10_000
_SETTLES = 4.0
_MOVED = 16_384 // 64
_DRAINS = 1.0  # seconds from a fail-over until its old master is restarted
_NODE_TIMEOUT = 15_000  # ms: on two cores a node may wait long for its turn
_PATIENT = "?timeout=5&connect_timeout=20"
_WITHIN = 60.0


@dataclass(frozen=True)
class Phase:
    """What the clients and the servers did within a span of time."""

    name: str
    seconds: float
    requests: int
    errors: dict[str, int]
    longest: float
    """Seconds of the slowest request."""
    client_cost: float
    server_cost: float
    """CPU of a request, in microseconds."""
    busiest: float
    """The share of the busiest master in all commands."""
    note: str = ""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


class Fleet:
    """The client processes, and what they report."""

    def __init__(self, processes: list[Process]) -> None:
        self._processes = processes
        self._reports: list[list[dict[str, Any]]] = [[] for _ in processes]
        pairs = zip(processes, self._reports, strict=True)
        self._reading = [asyncio.create_task(self._read(process, said)) for process, said in pairs]

    async def _read(self, process: Process, said: list[dict[str, Any]]) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            said.append(json.loads(line))

    async def settled(self) -> None:
        """Wait until every process works, and a moment longer."""
        async with asyncio.timeout(_WITHIN):
            while not all(any(each["done"] for each in said) for said in self._reports):
                await asyncio.sleep(0.1)
        await asyncio.sleep(_SETTLES)

    async def during(self, name: str, nodes: list[Valkey], act: Callable[[], Awaitable[str]]) -> Phase:
        """What happens while something is done."""
        before, began = [info(node) for node in nodes], time.time()
        note = await act()
        after, ended = [info(node) for node in nodes], time.time()
        await asyncio.sleep(1.2)  # the reports of the last moments
        windows = [[each for each in said if began + 0.5 <= each["at"] <= ended] for said in self._reports]
        requests = sum(each["done"] for said in windows for each in said)
        cpu = sum(said[-1]["cpu"] - said[0]["cpu"] for said in windows if said)
        counted = sum(each["done"] for said in windows for each in said[1:])
        errors = sum((Counter(each["errors"]) for said in windows for each in said), Counter[str]())
        gains = [{key: now[key] - then[key] for key in then} for then, now in zip(before, after, strict=True)]
        commands = [gain["commands"] for gain in gains]
        seconds = ended - began
        spanned = max((said[-1]["at"] - said[0]["at"] for said in windows if said), default=0.0)
        rate = counted / spanned if spanned else 0.0
        return Phase(
            name=name,
            seconds=seconds,
            requests=round(rate * seconds),
            errors=dict(errors),
            longest=max((each["longest"] for said in windows for each in said), default=0.0),
            client_cost=cpu / max(1, counted) * 1e6,
            server_cost=sum(gain["cpu"] for gain in gains) / max(1.0, rate * seconds) * 1e6,
            busiest=max(commands, default=0.0) / max(1.0, sum(commands)),
            note=note if requests else "nothing was done",
        )

    async def stop(self) -> None:
        """End all processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
            if process.returncode is None:
                process.kill()
                await process.wait()
        await asyncio.gather(*self._reading)


@asynccontextmanager
async def fleet(url: str, kind: str, tokens: Path, processes: int = PROCESSES) -> AsyncIterator[Fleet]:
    """This many client processes under load."""
    words = (sys.executable, "-m", "benchmarks.scale_load", url, str(TASKS), kind, str(tokens))
    started = [
        await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE) for _ in range(processes)
    ]
    running = Fleet(started)
    try:
        await running.settled()
        yield running
    finally:
        await running.stop()


async def measure() -> list[Phase]:
    """All phases; it takes about two minutes."""
    phases = []
    with TemporaryDirectory(prefix="ephemera-scale-") as folder:
        tokens = Path(folder) / "tokens.json"
        with embedded.cluster(masters=MASTERS, replicas=0, node_timeout=_NODE_TIMEOUT) as cluster:
            url = await _stocked(cluster, tokens)
            async with fleet(url, "plain", tokens) as clients:
                phases.append(await clients.during(EVEN, cluster.nodes, _wait))
                phases.append(await clients.during("a resharding", cluster.nodes, lambda: _reshard(cluster)))
            for kind, name in (("hot", HOT), ("local", LOCAL)):
                async with fleet(url, kind, tokens) as clients:
                    phases.append(await clients.during(name, cluster.nodes, _wait))
        with embedded.cluster(masters=MASTERS, replicas=1, node_timeout=_NODE_TIMEOUT) as cluster:
            url = await _stocked(cluster, tokens)
            async with fleet(url, "plain", tokens) as clients:
                phases.append(await clients.during("even load, with replicas", cluster.nodes, _wait))
                phases.append(
                    await clients.during("a rolling restart", cluster.nodes[:0], lambda: _restart(cluster))
                )
    return phases


async def _stocked(cluster: Cluster, tokens: Path) -> str:
    """The cluster's URL, once it has users; their tokens are written to a file."""
    url = cluster.url + _PATIENT
    async with connect(url, CATALOGUE) as store:
        tokens.write_text(json.dumps(await sign_in(store, _USERS)))
        await store[PAGES].get_or_load(load_page, number=1)
    return url


async def _wait() -> str:
    await asyncio.sleep(SECONDS)
    return ""


async def _reshard(cluster: Cluster) -> str:
    """Move slots from the first master to the last, key by key, as `valkey-cli --cluster reshard` does."""
    source, target = cluster.nodes[0], cluster.nodes[MASTERS - 1]
    began = time.time()
    keys = await asyncio.to_thread(lambda: sum(_move(source, target, slot) for slot in range(_MOVED)))
    return f"{_MOVED:,} slots with {keys:,} keys moved in {time.time() - began:.1f} s"


def _move(source: Valkey, target: Valkey, slot: int) -> int:
    """Move one slot; how many keys it had."""
    names = [str(node.ask("CLUSTER", "MYID")) for node in (source, target)]
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])
    moved = 0
    while keys := _words(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)):
        where = (LOOPBACK, target.port, "", 0, 5000, "AUTH", target.password or "", "KEYS")
        source.ask("MIGRATE", *where, *keys)
        moved += len(keys)
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", names[1])
    return moved


def _words(reply: object) -> list[str]:
    assert isinstance(reply, list)
    return [str(each) for each in reply]


async def _restart(cluster: Cluster) -> str:
    """Restart every node: a replica as it is, a master after its replica has taken over."""
    began = time.time()
    for master, replica in zip(cluster.nodes[:MASTERS], cluster.nodes[MASTERS:], strict=True):
        replica.ask("CLUSTER", "FAILOVER")
        await _until(lambda replica=replica: replica.role() == "master")  # type: ignore[misc]
        await asyncio.sleep(_DRAINS)
        await _restarted(master)
        master.ask("CLUSTER", "FAILOVER")
        await _until(lambda master=master: master.role() == "master")  # type: ignore[misc]
        await asyncio.sleep(_DRAINS)
        await _restarted(replica)
    return f"{2 * MASTERS} nodes restarted in {time.time() - began:.1f} s"


async def _restarted(node: Valkey) -> None:
    """Restart a replica, and wait until it has its master's data again."""
    await asyncio.to_thread(node.restart)
    await _until(lambda: "connected" in _words(node.ask("ROLE")))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_WITHIN):
        while True:
            with suppress(OSError):
                if await asyncio.to_thread(condition):
                    return
            await asyncio.sleep(0.05)
