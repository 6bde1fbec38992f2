"""How cost grows: a GET with 1 to 1,000 tasks, 1,000 to 10 million keys, and 1 to 6 nodes, beside redis-py.

Every point has two rows, how many reads a second and the 99th percentile of one, out of the same rounds. With
as many keys there is a third one, how many names an audit looks at in a second, all of them once. Nothing is
asked of these rows but to show a slope: more tasks share a write, more keys change nothing, and more nodes on
one machine only cost what they cost the client.

One server gets all the keys, by `DEBUG POPULATE`, so the points of this series come in their order.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal

from benchmarks import peers
from benchmarks.measure import OnProgress, Plan, reason
from benchmarks.outcome import OURS, Outcome
from benchmarks.rows import Round, Row
from benchmarks.servers import Servers
from ephemera import Catalogue, embedded, fixed
from ephemera.operations.audit import audit
from ephemera.operations.survey import SurveyOptions as AuditPlan
from ephemera.wire import open_client

Read = Callable[[], Awaitable[Any]]

PEER = "redis-py"
_SPREAD = 10_000  # keys that are read at most, on all nodes
_FEW = 1_000  # keys where it is neither keys nor nodes that grow
_TASKS = 50  # where it is not the number of tasks that grows
_FILLS_WITHIN = 120.0  # seconds
_BYTES = 16  # of a value
_PATIENT = "?timeout=30&connect_timeout=30"  # a busy machine is not a server that is down
_SIZES: dict[Series, tuple[int, ...]] = {
    "tasks": (1, 10, 100, 1_000),
    "keys": (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    "nodes": (1, 2, 3, 4, 5, 6),
}
Series = Literal["tasks", "keys", "nodes"]

CATALOGUE = Catalogue("growth")
ITEMS = CATALOGUE.value("item:{number}", bytes, lifetime=fixed(hours=1), purpose="One of many")


def _by_growth_alone(_: Servers) -> AbstractAsyncContextManager[Round]:
    raise NotImplementedError("this row is measured by bench.growth, with the others of its point")


@dataclass(frozen=True)
class Point:
    """One size of one series."""

    series: Series
    size: int

    @property
    def name(self) -> str:
        """As its rows are called."""
        return f"growth: GET, {self.size:,} {self.series if self.size > 1 else self.series[:-1]}"

    @property
    def there(self) -> int:
        """How many keys there are to read."""
        return {"tasks": _FEW, "keys": self.size, "nodes": _SPREAD}[self.series]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Reads a second, their p99, and of keys an audit's speed."""
        theirs = {PEER: _by_growth_alone}
        speed = Row(self.name, _by_growth_alone, theirs)
        p99 = Row(f"{self.name}, p99", _by_growth_alone, theirs, unit="ms", higher_is_better=False)
        names = Row(f"growth: audit, {self.size:,} keys", _by_growth_alone, unit="keys/s")
        return (speed, p99, names) if self.series == "keys" else (speed, p99)


POINTS = tuple(Point(series, size) for series, sizes in _SIZES.items() for size in sizes)
ROWS: tuple[Row, ...] = tuple(row for point in POINTS for row in point.rows)


def chosen(only: list[str]) -> list[Point]:
    """The points with a row whose name holds one of these texts; all of them when there is none."""
    return [
        point
        for point in POINTS
        if not only or any(text.lower() in row.name.lower() for text in only for row in point.rows)
    ]


async def measure(points: list[Point], plan: Plan, on_progress: OnProgress) -> list[Outcome]:
    """The outcomes of these points' rows; what fails is missing, and the others are measured."""
    outcomes: list[Outcome] = []
    with ExitStack() as running:
        grown: embedded.Valkey | None = None
        for point in points:
            on_progress(f"{point.name}: starting", 0)
            try:
                if point.series == "nodes":
                    with embedded.cluster(masters=point.size, replicas=0) as cluster:
                        outcomes += await _measured(point, cluster, plan, on_progress)
                    continue
                if grown is None:
                    config = {"enable-debug-command": "local"}
                    grown = running.enter_context(embedded.valkey(config=config))
                await _fill(grown, point.there)
                outcomes += await _measured(point, grown, plan, on_progress)
            except Exception as error:
                outcomes += [Outcome(row, missing={OURS: reason(error)}) for row in point.rows]
                on_progress(f"{point.name}: failed", plan.turns)
    return outcomes


async def _fill(server: embedded.Valkey, keys: int) -> None:
    """Have that many keys; those that are there stay."""
    words = ("DEBUG", "POPULATE", keys, "item", _BYTES)
    await asyncio.to_thread(
        embedded.send_command, server.address, *words, password=server.password, timeout=_FILLS_WITHIN
    )
    found = server.ask("DBSIZE")
    if found != keys:
        raise RuntimeError(f"the server has {found} keys in place of {keys}")


async def _measured(
    point: Point, where: embedded.Valkey | embedded.Cluster, plan: Plan, on_progress: OnProgress
) -> list[Outcome]:
    speed, p99, *names = [Outcome(row) for row in point.rows]
    tasks = point.size if point.series == "tasks" else _TASKS
    reads = {OURS: _ours(where, point), PEER: _theirs(where, point)}
    async with AsyncExitStack() as clients:
        opened: dict[str, Read] = {}
        for name, opener in reads.items():
            try:
                opened[name] = await clients.enter_async_context(opener)
            except Exception as error:
                speed.missing[name] = p99.missing[name] = reason(error)
        for turn in range(plan.turns):
            for name, read in opened.items():
                if name in speed.missing:
                    continue
                on_progress(f"{point.name} · {name}", 0)
                gc.collect()
                try:
                    found = await _round(read, tasks, plan.seconds if turn else plan.seconds / 2)
                except Exception as error:
                    speed.missing[name] = p99.missing[name] = reason(error)
                    continue
                if turn:
                    speed.figures.setdefault(name, []).append(found[0])
                    p99.figures.setdefault(name, []).append(found[1])
            on_progress(point.name, 1)
    for outcome in names:
        outcome.figures[OURS] = [await _audited(where, point.size)]
    return [speed, p99, *names]


async def _round(read: Read, tasks: int, seconds: float) -> tuple[float, float]:
    """Reads a second, and the 99th percentile of one in milliseconds."""
    clock, took = time.perf_counter, list[float]()
    began = clock()
    until = began + seconds

    async def work() -> None:
        now = clock()
        while True:  # once at least, so that everyone is connected after the warm-up
            await read()
            then = clock()
            took.append(then - now)
            now = then
            if now >= until:
                return

    await asyncio.gather(*(work() for _ in range(tasks)))
    lasted = clock() - began
    took.sort()
    return len(took) / lasted, took[int(len(took) * 0.99)] * 1000


@asynccontextmanager
async def _ours(where: embedded.Valkey | embedded.Cluster, point: Point) -> AsyncIterator[Read]:
    async with open_client(where.url + _PATIENT) as client:
        if point.series == "nodes":
            for first in range(0, _SPREAD, 500):
                names = (f"item:{number}" for number in range(first, first + 500))
                await asyncio.gather(*(client.call("SET", name, b"v" * _BYTES) for name in names))
        keys = _keys(point)
        yield lambda: client.call("GET", next(keys))


@asynccontextmanager
async def _theirs(where: embedded.Valkey | embedded.Cluster, point: Point) -> AsyncIterator[Read]:
    client_of: Any = peers.redis_py_cluster if point.series == "nodes" else peers.redis_py_untimed
    async with client_of(where) as client:
        keys = _keys(point)
        if await client.get(next(keys)) is None:
            raise RuntimeError("the keys are not there")
        yield lambda: client.get(next(keys))


def _keys(point: Point) -> Iterator[str]:
    """Names at random, the same for both; made before they are needed."""
    drawn = random.Random(point.name)
    return cycle([f"item:{drawn.randrange(point.there)}" for _ in range(_SPREAD)])


async def _audited(where: Any, keys: int) -> float:
    """Names a second of an audit that looks at all of them."""
    began = time.perf_counter()
    report = await audit(where.url + _PATIENT, [CATALOGUE], AuditPlan(sample=0, budget=_FILLS_WITHIN))
    took = time.perf_counter() - began
    if report.coverage.names < keys or report.unknown.keys:
        raise RuntimeError(f"the audit saw {report.coverage.names} names, {report.unknown.keys} unknown")
    return report.coverage.names / took
