"""Rows of the league service, over HTTP as its users see it.

The 304 is that of the whole service (`ephemera serve league`, one process) for a client that has the table,
through all that a request passes there: request ids, measuring, routing. It is measured against a bare route
of FastAPI under the same uvicorn (uvloop, httptools, no access log), with the load of `benchmarks.web`.

The worst case is the scenario of that name: 5,000 users who poll a live match every 3 to 5 seconds, played by
locust on the same machine (`python -m ephemera_services.league.load worst`). It runs once for 90 seconds, and
once more without prewarming, as a peer; all rounds give their figures, and docs/images/league-prewarm.svg
shows both. An error among the answers is an error of the row.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

from benchmarks.http_cache import polled
from benchmarks.rows import Absolute, Opener, Round, Row, Times
from benchmarks.servers import Servers
from benchmarks.uvicorn_process import on_separate_cores
from benchmarks.web import Requests, connected
from benchmarks.web_app import HELLO
from ephemera import embedded
from ephemera.embedded import free_ports
from ephemera_services.league.load import LoadOutcome

_CONNECTIONS = 50
_TABLE = "/api/league/table"
_FULL, _SMOKE = (5000, 90), (200, 8)  # users, seconds
_SHORTEST = 0.5  # seconds of a round from which on it is no smoke test
PLOT = Path(__file__).parents[1] / "docs" / "images" / "league-prewarm.svg"
_PLAYED: dict[bool, LoadOutcome] = {}
"""The worst case with prewarming and without, as far as they were played."""


@asynccontextmanager
async def _league(servers: Servers) -> AsyncIterator[int]:
    """The port of a league with its demonstration, on a database of its own."""
    port = free_ports(1)[0]
    database = await asyncio.to_thread(embedded.postgres)
    environment = {
        **os.environ,
        "EPHEMERA_URL": servers.valkey.url,
        "EPHEMERA_DATABASE_URL": database.url,
        "EPHEMERA_LOG_LEVEL": "warning",
        "EPHEMERA_LEAGUE_DEMO": "true",
        "EPHEMERA_LEAGUE_DEMO_REFEREE": "false",
    }
    words = (str(Path(sys.executable).with_name("ephemera")), "serve", "league", "--port", str(port))
    process = await asyncio.create_subprocess_exec(*words, env=environment)
    try:
        (await connected(port, b"")).close()  # it is up
        with on_separate_cores(process.pid, servers.valkey.pid):
            yield port
    finally:
        process.terminate()
        await process.wait()
        await asyncio.to_thread(database.stop)


@asynccontextmanager
async def _polled_table(servers: Servers) -> AsyncIterator[Round]:
    async with _league(servers) as port:
        tag = await asyncio.to_thread(_tag, port)
        request = f"GET {_TABLE} HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n".encode()
        browsers = [await connected(port, request, b"\r\n\r\n", 304) for _ in range(_CONNECTIONS)]
        yield Requests(browsers)


def _tag(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}{_TABLE}") as response:
        return str(response.headers["etag"])


def _worst_case(*, prewarm: bool) -> Opener:
    """The p95 that users saw, in milliseconds."""

    @asynccontextmanager
    async def opened(_: Servers) -> AsyncIterator[Round]:
        from ephemera_services.league.load import run

        found: list[float] = []

        async def p95(seconds: float) -> float:
            if not found:
                users, lasts = _FULL if seconds >= _SHORTEST else _SMOKE
                outcome = await asyncio.to_thread(run, "worst", users=users, seconds=lasts, prewarm=prewarm)
                if outcome.figures["errors"]:
                    raise RuntimeError(f"{outcome.figures['errors']} errors: {outcome.figures['failures']}")
                found.append(float(outcome.figures["p95"]))
                _show(outcome)
            return found[0]

        yield p95

    return opened


def _show(outcome: LoadOutcome) -> None:
    """Draw both ways once both have been played in full."""
    from ephemera_services.league.load import draw

    if outcome.users == _FULL[0]:
        _PLAYED[outcome.prewarmed] = outcome
    if len(_PLAYED) == 2:
        draw([_PLAYED[True], _PLAYED[False]], PLOT)


ROWS = (
    Row(
        "league: 304 of a polled table",
        _polled_table,
        {"bare FastAPI": polled("plain", HELLO.encode(), 200)},
        (Times(0.9, "bare FastAPI"),),
        unit="requests/s",
    ),
    Row(
        "league: worst case, 5,000 users on a live match, p95",
        _worst_case(prewarm=True),
        {"prewarm off": _worst_case(prewarm=False)},
        (Absolute(1000, "ms", at_most=True),),
        unit="ms",
        higher_is_better=False,
        patience=_FULL[1] + 60,
    ),
)
