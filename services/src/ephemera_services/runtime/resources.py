"""The servers of a service: a store on Redis and an SQL engine, embedded ones where no URL is configured.

Tables live in a schema with the service's name, so services can share a database. At startup, by one process
at a time, those of Ephemera's patterns and those of `declare_tables` are migrated; others are created if they
do not exist. Errors and logs never show the parameters of SQL statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateSchema
from starlette.middleware import Middleware

from ephemera import Catalogue, Store, connect, embedded
from ephemera.operations.configuration import mark_server
from ephemera.sql import ShrinkingPool, migrate, verify
from ephemera_services.runtime.settings import ServiceSettings

_POOL_SIZE = 10
_CONNECT_TIMEOUT = 5  # seconds
_SESSION_OPTIONS = "-c statement_timeout=10s -c timezone=UTC -c idle_in_transaction_session_timeout=30s"


@dataclass(frozen=True)
class ServiceDefinition:
    """A service's name, description, keys, tables and middleware."""

    name: str
    description: str
    catalogue: Catalogue
    tables: MetaData
    body_limits: Mapping[str, int] = field(default_factory=dict)
    """Maximum size of a request body in bytes, by path, where it exceeds the default."""
    identity: str | None = None
    """The mark that its Redis must carry, if any; an embedded server is marked when it starts."""
    middleware: tuple[Middleware, ...] = ()
    """Runs inside the middleware that all services share; the first one is the outermost."""
    separate_queue: bool = False
    """Whether embedded servers are two, because the first one may evict."""
    store_resources: Callable[[AsyncEngine], Mapping[Any, object]] = lambda _: {}
    """The `resources=` of its store: what declarations need besides Redis."""
    guards: tuple[Any, ...] = ()
    """Declarations with tables that are not in the catalogue."""
    pool_class: type[ShrinkingPool] = ShrinkingPool
    """The engine's pool of connections."""


@dataclass(frozen=True)
class Resources:
    """What is open while a service runs."""

    store: Store
    engine: AsyncEngine
    redis_urls: tuple[str, ...]
    """The Redis servers of the store, for tools that connect by themselves; they may contain passwords."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    """What `/metrics` exposes; a service registers its own metrics here."""


@asynccontextmanager
async def open_resources(settings: ServiceSettings, service: ServiceDefinition) -> AsyncIterator[Resources]:
    """Open a service's store and SQL engine, on embedded servers where the settings name none."""
    async with AsyncExitStack() as stack:
        url, database = settings.url, settings.database_url
        redis_url = url.reveal() if url is not None else await _embedded(stack, _valkey, settings, service)
        sql_url = database.reveal() if database else await _embedded(stack, _postgres, settings, service)
        queue_url = settings.queue_url.reveal() if settings.queue_url is not None else None
        if url is None and service.separate_queue:
            queue_url = await _embedded(stack, _queue, settings, service)
        if url is None and service.identity is not None:
            await mark_server(redis_url, service.identity)
        engine = await stack.enter_async_context(
            open_engine(
                sql_url, service.tables, service.catalogue, *service.guards, pool_class=service.pool_class
            )
        )
        store = await stack.enter_async_context(
            connect(
                redis_url,
                service.catalogue,
                queue_url=queue_url,
                required=False,
                identity=service.identity,
                resources=service.store_resources(engine),
            )
        )
        yield Resources(store, engine, (redis_url,) if queue_url is None else (redis_url, queue_url))


@asynccontextmanager
async def open_engine(
    url: str,
    tables: MetaData,
    *declarations: Any,
    pool_class: type[ShrinkingPool] = ShrinkingPool,
) -> AsyncIterator[AsyncEngine]:
    """Open an engine on PostgreSQL, migrate the tables of declarations, and create all others.

    Raises `SchemaMismatch` if a later release has changed the tables so that this code cannot use them.
    """
    engine = create_async_engine(
        "postgresql+psycopg://" + url.partition("://")[2],
        poolclass=pool_class,
        pool_size=_POOL_SIZE,
        max_overflow=0,
        pool_timeout=_CONNECT_TIMEOUT,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"options": _SESSION_OPTIONS, "connect_timeout": _CONNECT_TIMEOUT},
    )
    try:
        await migrate(engine, *declarations)
        await verify(engine, *declarations)  # a later release may have excluded this code
        async with engine.begin() as sql:
            await advisory_lock(sql, f"tables of {tables.schema}")
            if tables.schema is not None:
                await sql.execute(CreateSchema(tables.schema, if_not_exists=True))
            await sql.run_sync(tables.create_all)
        yield engine
    finally:
        await engine.dispose()


async def advisory_lock(sql: AsyncConnection, name: str) -> None:
    """Acquire a PostgreSQL advisory lock until the end of this transaction."""
    await sql.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


async def _embedded(
    stack: AsyncExitStack,
    start: Callable[[Path | None, str], tuple[Any, str]],
    settings: ServiceSettings,
    service: ServiceDefinition,
) -> str:
    folder = None if settings.data is None else Path(settings.data) / service.name
    server, url = await asyncio.to_thread(start, folder, service.name)
    stack.push_async_callback(asyncio.to_thread, server.stop)
    return url


def _valkey(folder: Path | None, _: str) -> tuple[Any, str]:
    server = embedded.valkey(data=None if folder is None else folder / "valkey")
    return server, server.url


def _queue(folder: Path | None, _: str) -> tuple[Any, str]:
    server = embedded.valkey(data=None if folder is None else folder / "valkey-queue")
    return server, server.url


def _postgres(folder: Path | None, name: str) -> tuple[Any, str]:
    server = embedded.postgres(data=None if folder is None else folder / "postgresql")
    return server, server.database(name)
