"""The services that the console shows: servers by role, their catalogues, and optionally a database.

Servers may be down when the console starts and at any later time: connections are opened in the background,
and each call fails at once with `ConnectionFailed` until its server is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ephemera.console._hit_ratios import HitRatios
from ephemera.console._keyspace_groups import KeyspaceGroup, keyspace_groups
from ephemera.keyspace import Catalogue, Keyspace, Role, Store
from ephemera.operations.inspect import declared_jobs
from ephemera.wire import Client, NodeClient, open_client, parse_url

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_DEFAULT_NAME = "ephemera"


@dataclass(frozen=True)
class ConsoleService:
    """The servers and catalogues of a service; URLs may contain passwords."""

    catalogues: tuple[Catalogue, ...]
    url: str = field(repr=False)
    queue_url: str | None = field(default=None, repr=False)
    database_url: str | None = field(default=None, repr=False)
    metrics_urls: tuple[str, ...] = ()
    """The `/metrics` of its processes."""
    name: str = ""
    """Its name; by default the names of its catalogues."""


class Service:
    """One service with open connections."""

    def __init__(self, settings: ConsoleService, store: Store, engine: AsyncEngine | None) -> None:
        self.catalogues = settings.catalogues
        self.name = settings.name or ", ".join(each.name for each in settings.catalogues) or "server"
        self.store = store
        self.hit_ratios = HitRatios(settings.metrics_urls)
        self.engine = engine
        self.survey_commands: Counter[str] = Counter()
        """Commands that surveys sent on connections of their own, by the server's address."""
        self.urls: Mapping[Role, str] = {
            "cache": settings.url,
            "queue": settings.queue_url or settings.url,
        }
        """May contain passwords: for `operations`, never shown."""

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
    def database(self) -> AsyncEngine:
        """The engine of a service that has a database; see `engine`."""
        if self.engine is None:
            raise RuntimeError(f"{self.name} has no database")
        return self.engine

    @property
    def down(self) -> list[str]:
        """The addresses of servers that are not connected."""
        return [address_of(url) for _, url, client in self.servers if not client.up]

    @cached_property
    def groups(self) -> list[KeyspaceGroup]:
        """Every declared keyspace, those of a pattern together."""
        return [group for catalogue in self.catalogues for group in keyspace_groups(catalogue)]

    @property
    def keyspaces(self) -> list[Keyspace[Any]]:
        """Every declared keyspace, in the order of the catalogues."""
        return [keyspace for catalogue in self.catalogues for keyspace in catalogue]


def commands_sent(nodes: Iterable[NodeClient]) -> int:
    """How many commands were sent to these servers and answered."""
    return sum(sum(node.link.latencies.counts) for node in nodes)


def address_of(url: str) -> str:
    """The address in a URL, without credentials."""
    return ",".join(map(str, parse_url(url).addresses))


def _named(url: str) -> str:
    """The same URL, by which the server lists the connections as the console's."""
    if parse_url(url).client_name != _DEFAULT_NAME:
        return url
    return f"{url}{'&' if '?' in url else '?'}client_name=ephemera-console"


@asynccontextmanager
async def open_service(settings: ConsoleService) -> AsyncIterator[Service]:
    """Open a service's connections; its servers may be down."""
    settings = replace(
        settings, url=_named(settings.url), queue_url=settings.queue_url and _named(settings.queue_url)
    )
    async with AsyncExitStack() as stack:
        # Not `connect`: it refuses a server marked with another name, and the operator chose this one.
        cache = queue = await stack.enter_async_context(open_client(settings.url, required=False))
        if settings.queue_url is not None and settings.queue_url != settings.url:
            queue = await stack.enter_async_context(open_client(settings.queue_url, required=False))
        engine = None
        resources: dict[Any, object] = {}
        if settings.database_url:
            from ephemera.sql import sql_engine

            engine = sql_engine(settings.database_url)
            stack.push_async_callback(engine.dispose)
            for catalogue in settings.catalogues:
                for jobs in declared_jobs(catalogue):
                    resources |= await stack.enter_async_context(jobs.open_resources(engine))
        store = Store({"cache": cache, "queue": queue}, *settings.catalogues, resources=resources)
        stack.push_async_callback(store.aclose)
        yield Service(settings, store, engine)
