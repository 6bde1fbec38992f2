"""One process of the stampede row: twenty callers of one cold key at a given moment; prints its loads.

python -m benchmarks.cache_stampede ephemera redis://127.0.0.1:6379 some-key 1763194000.5
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import uvloop

from ephemera import Catalogue, connect
from ephemera.patterns.cache import Cache

_CALLERS = 20
_HOUR = timedelta(hours=1)
_CATALOGUE = Catalogue("stampede")
_COLD: Cache[str] = Cache(_CATALOGUE, "stampede:{key}", str, fresh=_HOUR, purpose="Measured here")


@asynccontextmanager
async def ephemera(url: str, load: Any) -> AsyncIterator[Any]:
    """Our cache."""
    async with connect(url, _CATALOGUE) as store:
        yield lambda key: store[_COLD].get_or_load(load, key=key)


@asynccontextmanager
async def cashews(url: str, load: Any) -> AsyncIterator[Any]:
    """The peer with its lock, which merges the calls of a process too."""
    cache = import_module("cashews").Cache()
    cache.setup(url, client_side=False)
    yield cache(ttl=_HOUR, key="stampede:{key}", lock=True)(load)
    await cache.close()


@asynccontextmanager
async def aiocache(url: str, load: Any) -> AsyncIterator[Any]:
    """The decorator of aiocache against stampedes, with a lease that covers the load."""
    module, place = import_module("aiocache"), urlsplit(url)
    reads = module.cached_stampede(
        lease=2,
        ttl=3600,
        key_builder=lambda _, key: key,
        cache=module.RedisCache,
        endpoint=place.hostname,
        port=place.port,
        password=place.password,
    )
    yield reads(load)
    await reads.cache.close()


async def main(contender: str, url: str, key: str, begins: float) -> int:
    """How many loads this process did."""
    loads = 0

    async def load(key: str) -> str:
        nonlocal loads
        loads += 1
        await asyncio.sleep(0.5)
        return key

    contenders = {"ephemera": ephemera, "cashews": cashews, "aiocache": aiocache}
    async with contenders[contender](url, load) as read:
        await asyncio.sleep(begins - time.time())
        values = await asyncio.gather(*(read(key=key) for _ in range(_CALLERS)))
        if set(values) != {key}:
            raise RuntimeError(f"{values!r} in place of the loaded value")
    return loads


if __name__ == "__main__":
    contender, url, key, begins = sys.argv[1:]
    print(json.dumps({"loads": uvloop.run(main(contender, url, key, float(begins)))}))
