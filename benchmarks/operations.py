"""The audit's rows: how long the names of a million keys take, an inferred catalogue, and a bystander.

The keys are those of a service with twelve spaces. The bare SCAN loop asks for as many names at a time as the
audit does, through the same wire, and looks at none of them. What `infer` is compared with is an audit that
knows the catalogue.

The bystander is a process of its own that reads one key, once a millisecond, while audits run one after the
other. What is asked is how long the server keeps it waiting, so it and the server have their processors for
themselves where the system allows that (SCHED_FIFO): otherwise three busy processes on two cores wait for
each other, and for whatever else the machine does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from benchmarks.bystander import undisturbed
from benchmarks.rows import Absolute, Round, Row, Times
from benchmarks.servers import Servers
from ephemera import Catalogue, fixed
from ephemera.operations.audit import audit
from ephemera.operations.infer import infer
from ephemera.operations.survey import PAGE_SIZE, SurveyOptions
from ephemera.wire import open_client

KEYS = 1_000_000
_TOGETHER = 500  # keys in one MSET

CATALOGUE = Catalogue("audited")
SPACES = [
    CATALOGUE.value(f"{area}:{what}", bytes, lifetime=fixed(hours=1), purpose="to be found")
    for area in ("account", "course", "feed", "slides")
    for what in ("profile:{user_id}", "page:{id}:{part}", "count:{day}")
]


@asynccontextmanager
async def names_only(servers: Servers) -> AsyncIterator[Round]:
    """An audit of names alone, from connecting to the report; names a second."""
    await _fill(servers)

    async def measured_round(seconds: float) -> float:
        began = time.perf_counter()
        report = await audit(servers.valkey.url, [CATALOGUE], SurveyOptions(sample=0))
        took = time.perf_counter() - began
        if report.coverage.names < KEYS or report.unknown.keys:
            raise RuntimeError(f"the audit saw {report.coverage.names} names, {report.unknown.keys} unknown")
        return report.coverage.names / took

    yield measured_round


@asynccontextmanager
async def bare_scan(servers: Servers) -> AsyncIterator[Round]:
    """A loop of SCAN that looks at no name; names a second."""
    await _fill(servers)
    async with open_client(servers.valkey.url) as client:

        async def measured_round(seconds: float) -> float:
            names, cursor, began = 0, b"0", time.perf_counter()
            while True:
                cursor, page = await client.call("SCAN", cursor, "COUNT", PAGE_SIZE)
                names += len(page)
                if cursor == b"0":
                    return names / (time.perf_counter() - began)

        yield measured_round


@asynccontextmanager
async def whole_audit(servers: Servers) -> AsyncIterator[Round]:
    """An audit with its samples, from connecting to the report; names a second."""
    await _fill(servers)

    async def measured_round(seconds: float) -> float:
        began = time.perf_counter()
        report = await audit(servers.valkey.url, [CATALOGUE])
        return report.coverage.names / (time.perf_counter() - began)

    yield measured_round


@asynccontextmanager
async def proposal(servers: Servers) -> AsyncIterator[Round]:
    """`infer` on the same keys, from connecting to the module's source; names a second."""
    await _fill(servers)

    async def measured_round(seconds: float) -> float:
        began = time.perf_counter()
        proposed = await infer(servers.valkey.url)
        took = time.perf_counter() - began
        if proposed.coverage.names < KEYS or not proposed.coverage.complete:
            raise RuntimeError(f"the proposal is made from {proposed.coverage.names} names")
        return proposed.coverage.names / took

    yield measured_round


@asynccontextmanager
async def bystander_of_an_audit(servers: Servers) -> AsyncIterator[Round]:
    """The 99th percentile of a bystander's GET while audits run; milliseconds."""
    await _fill(servers)
    undisturbed(servers.valkey.pid)

    async def measured_round(seconds: float) -> float:
        waiting = asyncio.create_task(_bystander(servers, seconds))
        while not waiting.done():
            await audit(servers.valkey.url, [CATALOGUE])
        return await waiting

    yield measured_round


@asynccontextmanager
async def bystander_alone(servers: Servers) -> AsyncIterator[Round]:
    """The same with no audit."""
    await _fill(servers)

    async def measured_round(seconds: float) -> float:
        return await _bystander(servers, seconds)

    yield measured_round


async def _bystander(servers: Servers, seconds: float) -> float:
    words = (sys.executable, "-m", "benchmarks.bystander", servers.valkey.url, str(seconds))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return float(out)


async def _fill(servers: Servers) -> None:
    """Have a million keys on the row's server, unless they are there."""
    async with open_client(servers.valkey.url) as client:
        if await client.call("DBSIZE") >= KEYS:
            return
        names = _names()
        for _ in range(0, KEYS, 20 * _TOGETHER):
            batches = [[part for _ in range(_TOGETHER) for part in (next(names), "v")] for _ in range(20)]
            await asyncio.gather(*(client.call("MSET", *batch) for batch in batches))


def _names() -> Iterator[str]:
    for number in range(KEYS):
        space = SPACES[number % len(SPACES)]
        yield space.template.render(dict.fromkeys(space.template.fields, f"{number:012x}"))


ROWS = (
    Row(
        "audit: names of 1,000,000 keys",
        names_only,
        {"bare SCAN": bare_scan},
        (Times(0.4, "bare SCAN"),),
        unit="keys/s",
    ),
    Row(
        "audit: infer of 1,000,000 keys",
        proposal,
        {"an audit of them": whole_audit},
        (Times(0.5, "an audit of them"),),
        unit="keys/s",
    ),
    Row(
        "audit: a bystander's GET, p99",
        bystander_of_an_audit,
        {"no audit": bystander_alone},
        (Absolute(1, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
    ),
)
