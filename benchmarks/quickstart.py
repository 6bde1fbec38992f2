"""The row of the quickstart's service: a request that reads a session, checks a limit and reads a cache.

`/me` of the quickstart with a limit by address, under uvicorn as in `benchmarks.web`. The peer is the same
FastAPI service with starsessions, limits and cashews; the bare route returns the same profile at once.
"""

from __future__ import annotations

from benchmarks.rows import Row, Times
from benchmarks.servers import Servers
from benchmarks.sessions import HASHES
from benchmarks.web import served, signed_in, signed_in_elsewhere

_END = b'"city":"Riga"}'
_TURNS = 20
_TURN = 0.2


async def _signed_in(servers: Servers) -> list[str]:
    return await signed_in(servers, HASHES)


ROWS = (
    Row(
        "quickstart: session, limit and cached read",
        served("benchmarks.quickstart_app:app", _signed_in, path="/me", end=_END),
        {
            "starsessions, limits, cashews": served(
                "benchmarks.quickstart_glued:glued", signed_in_elsewhere, path="/me", end=_END
            ),
            "bare FastAPI": served("benchmarks.quickstart_app:bare", _signed_in, path="/me", end=_END),
        },
        (Times(4, "starsessions, limits, cashews"), Times(0.6, "bare FastAPI")),
        unit="requests/s",
        turns=_TURNS,
        turn=_TURN,
    ),
)
