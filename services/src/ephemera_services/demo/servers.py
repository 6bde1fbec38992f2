"""The servers of a demonstration: those that the user named, and embedded ones in place of the others.

Embedded ones are configured for their role as `ephemera server-config` has it for production, start at the
same time, and end with the demonstration. Only they are ever stopped on purpose.
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
from ephemera.operations.configuration._server_config import server_settings
from ephemera_services.demo.claims import claim_redis
from ephemera_services.demo.flag_errors import Given

S = TypeVar("S", "Valkey", "Postgres")

_MEMORY = "64mb"
_LISTENING = ("bind", "port", "protected-mode")  # the embedded server says it itself


@dataclass(frozen=True)
class Servers:
    """Where everything is; `own` are the Redis servers that the demonstration may stop and start."""

    cache_url: str
    queue_url: str
    database_url: str
    own: tuple[Valkey, ...]
    given: Given

    @property
    def may_stop_redis(self) -> bool:
        """Whether both Redis servers are ours to stop."""
        return len(self.own) == 2


@asynccontextmanager
async def open_servers(given: Given) -> AsyncIterator[Servers]:
    """All servers, ready for a demonstration; those that the user named were claimed before."""
    ours: list[Valkey | Postgres] = []
    try:
        starting = (
            _valkey(ours, "cache", given.url),
            _valkey(ours, "queue", given.queue_url),
            _postgres(ours, given.database_url),
        )
        # All of them are waited for, whatever becomes of one, so that all can be stopped.
        started: Any = await asyncio.gather(*starting, return_exceptions=True)
        for each in started:
            if isinstance(each, BaseException):
                raise each
        cache, queue, postgres = started
        servers = Servers(
            cache_url=given.url or _url(cache),
            queue_url=given.queue_url or _url(queue),
            database_url=given.database_url or _url(postgres),
            own=tuple(each for each in (cache, queue) if each is not None),
            given=given,
        )
        for server in servers.own:
            await claim_redis("embedded", server.url)
        yield servers
    finally:
        await asyncio.gather(*(asyncio.to_thread(each.stop) for each in ours))


async def _valkey(ours: list[Valkey | Postgres], role: Role, given: str | None) -> Valkey | None:
    if given is not None:
        return None
    settings = {each.name: each.value for each in server_settings(role, _MEMORY)}
    config = {name: value for name, value in settings.items() if name not in _LISTENING}
    return await _started(ours, lambda: embedded.valkey(config=config))


async def _postgres(ours: list[Valkey | Postgres], given: str | None) -> Postgres | None:
    return None if given is not None else await _started(ours, embedded.postgres)


async def _started(ours: list[Valkey | Postgres], begin: Callable[[], S]) -> S:
    """A server that will be stopped, also if the wait for it is cancelled."""
    starting = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        server = await asyncio.shield(starting)
    except asyncio.CancelledError:
        ours.append(await starting)
        raise
    ours.append(server)
    return server


def _url(server: Valkey | Postgres | None) -> str:
    assert server is not None  # noqa: S101 - what was not given was started
    return server.url
