"""The applications that `benchmarks.http_cache` serves: one resource, answered with 304 where possible.

The server to use is in the environment variable `BENCH_URL`. The page is a league's table of some kilobytes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from benchmarks.web_app import HELLO
from ephemera import Catalogue, connect
from ephemera.patterns.http_cache import Freshness, HttpCache
from ephemera.web import ResourceApp
from ephemera.web.fastapi import add_resource

CATALOGUE = Catalogue("bench-http-cache")
SITE: HttpCache[None] = HttpCache(CATALOGUE, "bench-site")


async def load_table(_: None) -> list[dict[str, Any]]:
    """A table of sixteen clubs."""
    return [{"club": f"Club {place}", "played": 30, "points": 90 - 3 * place} for place in range(16)]


TABLE = SITE.resource(
    "bench:table", load_table, freshness=Freshness(fresh=timedelta(hours=1)), purpose="Measured here"
)


@asynccontextmanager
async def _with_store(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with connect(os.environ["BENCH_URL"], CATALOGUE, resources={SITE: None}) as store:
        yield {"store": store}


async def hello() -> PlainTextResponse:
    """What a route of FastAPI answers at the least."""
    return PlainTextResponse(HELLO)


polled = Starlette(routes=[Route("/", ResourceApp(TABLE))], lifespan=_with_store)
documented = FastAPI(lifespan=_with_store)
add_resource(documented, "/", TABLE)
plain = FastAPI()
plain.add_api_route("/", hello)
