"""The servers of the demo: those that the user named, and embedded ones for the rest.

Embedded servers get the production configuration of their role (`ephemera server-config`), start in parallel,
and end with the demo. They listen on sockets in private folders, so that no other user of the machine reaches
them. Only they are ever stopped on purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.keyspace import Role
from ephemera.operations.configuration import server_settings
from ephemera_services.demo.external_servers import ServerUrls, claim_redis

S = TypeVar("S", "Valkey", "Postgres")

_MEMORY = "64mb"
_LISTEN_OPTIONS = ("bind", "port", "protected-mode")  # the embedded server sets them itself


@dataclass(frozen=True)
class Servers:
    """The URLs of all servers; `embedded_redis` are those that the demo may stop and start."""

    cache_url: str
    queue_url: str
    database_url: str
    embedded_redis: tuple[Valkey, ...]
    external: ServerUrls

    @property
    def may_stop_redis(self) -> bool:
        """Whether both Redis servers are embedded."""
        return len(self.embedded_redis) == 2


@asynccontextmanager
async def open_servers(external: ServerUrls) -> AsyncIterator[Servers]:
    """Start the embedded servers; those that the user named have been claimed before."""
    started: list[Valkey | Postgres] = []
    try:
        starting = (
            _valkey(started, "cache", external.url),
            _valkey(started, "queue", external.queue_url),
            _postgres(started, external.database_url),
        )
        # Wait for all of them even if one fails, so that all can be stopped.
        results: Any = await asyncio.gather(*starting, return_exceptions=True)
        for each in results:
            if isinstance(each, BaseException):
                raise each
        cache, queue, postgres = results
        servers = Servers(
            cache_url=external.url or _url(cache),
            queue_url=external.queue_url or _url(queue),
            database_url=external.database_url or _url(postgres),
            embedded_redis=tuple(each for each in (cache, queue) if each is not None),
            external=external,
        )
        for server in servers.embedded_redis:
            await claim_redis("embedded", server.url)
        yield servers
    finally:
        await asyncio.gather(*(asyncio.to_thread(each.stop) for each in started))


async def _valkey(started: list[Valkey | Postgres], role: Role, url: str | None) -> Valkey | None:
    if url is not None:
        return None
    settings = {each.name: each.value for each in server_settings(role, _MEMORY)}
    config = {name: value for name, value in settings.items() if name not in _LISTEN_OPTIONS}
    return await _start(started, lambda: embedded.valkey(unix=True, config=config))


async def _postgres(started: list[Valkey | Postgres], url: str | None) -> Postgres | None:
    return None if url is not None else await _start(started, embedded.postgres)


async def _start(started: list[Valkey | Postgres], start: Callable[[], S]) -> S:
    """Start a server and record it, even if the wait for it is cancelled."""
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        server = await asyncio.shield(starting)
    except asyncio.CancelledError:
        started.append(await starting)
        raise
    started.append(server)
    return server


def _url(server: Valkey | Postgres | None) -> str:
    return "" if server is None else server.url
