"""A place that the console looks at: servers by role, the catalogues they carry, and perhaps a database.

Servers may be down when the console starts and at any time later: a place is opened without asking them, and
each call on it fails at once with `ConnectionFailed` until its server is back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ephemera.console._hit_ratios import HitRatios
from ephemera.keyspace import Catalogue, Keyspace, Role, Store
from ephemera.wire import Client, open_client, parse_url

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


@dataclass(frozen=True)
class PlaceSettings:
    """Where a place is; URLs may hold passwords."""

    catalogues: tuple[Catalogue, ...]
    url: str = field(repr=False)
    queue_url: str | None = field(default=None, repr=False)
    database_url: str | None = field(default=None, repr=False)
    metrics_urls: tuple[str, ...] = ()
    """Where its services tell their metrics."""
    name: str = ""
    """What it is called; the names of its catalogues unless given."""


class Place:
    """One place, open."""

    def __init__(self, settings: PlaceSettings, store: Store, engine: AsyncEngine | None) -> None:
        self.catalogues = settings.catalogues
        self.name = settings.name or ", ".join(each.name for each in settings.catalogues) or "server"
        self.store = store
        self.hit_ratios = HitRatios(settings.metrics_urls)
        self.engine = engine
        self.urls: Mapping[Role, str] = {
            "cache": settings.url,
            "queue": settings.queue_url or settings.url,
        }
        """May hold passwords: for `operations`, never to be shown."""

    @property
    def servers(self) -> Iterator[tuple[Role | None, str, Client]]:
        """The different servers: role (None: both), URL and client."""
        cache, queue = self.store.client("cache"), self.store.client("queue")
        if cache is queue:
            yield None, self.urls["cache"], cache
        else:
            yield "cache", self.urls["cache"], cache
            yield "queue", self.urls["queue"], queue

    @property
    def down(self) -> list[str]:
        """The addresses of servers that are not connected."""
        return [address_of(url) for _, url, client in self.servers if not client.up]

    @property
    def spaces(self) -> list[Keyspace[Any]]:
        """Every declared space, in the order of the catalogues."""
        return [space for catalogue in self.catalogues for space in catalogue]


def address_of(url: str) -> str:
    """Where a URL points, without whatever is secret in it."""
    return ",".join(map(str, parse_url(url).addresses))


@asynccontextmanager
async def opened(settings: PlaceSettings) -> AsyncIterator[Place]:
    """A place, with its connections; its servers may be down."""
    async with AsyncExitStack() as stack:
        # No `connect`: it would refuse a server that is marked, and an operator knows which it is.
        cache = queue = await stack.enter_async_context(open_client(settings.url, required=False))
        if settings.queue_url is not None and settings.queue_url != settings.url:
            queue = await stack.enter_async_context(open_client(settings.queue_url, required=False))
        engine = None
        resources: dict[Any, object] = {}
        if settings.database_url:
            from ephemera.patterns.jobs import Jobs, sql_engine

            engine = sql_engine(settings.database_url)
            stack.push_async_callback(engine.dispose)
            for catalogue in settings.catalogues:
                for jobs in catalogue.patterns:
                    if isinstance(jobs, Jobs):
                        resources |= await stack.enter_async_context(jobs.open_resources(engine))
        store = Store({"cache": cache, "queue": queue}, *settings.catalogues, resources=resources)
        stack.push_async_callback(store.aclose)
        yield Place(settings, store, engine)
