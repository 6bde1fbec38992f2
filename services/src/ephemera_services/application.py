"""From settings to an application: what every system's `create_app` is made of, and how it is run.

    def create_app(settings: Settings) -> FastAPI:
        return application(settings, SYSTEM, open_identity, auth_routes.router, profile_routes.router)

The application's lifespan opens the store and the SQL engine, starting an embedded Valkey or PostgreSQL
where the settings name none, and then `start`, whose result the routes find as `request.app.state.service`.
All of it is closed again in reverse. Redis may be absent when it opens and go away at any time; SQL may not
be absent at the start.

Every application has `/healthz` and `/readyz` (`readiness`), `/metrics` for who has the token (`metrics`),
problem documents (`problem_answers`), bounded bodies (`body_limits`), request ids and logs (`requests`,
`logs`). It keeps nothing in ASGI's lifespan state,
so it can be mounted under a prefix, if whoever mounts it runs `app.router.lifespan_context(app)`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.middleware import Middleware

from ephemera import Catalogue, Store, connect, embedded
from ephemera.operations.inspect._server_mark import mark_server
from ephemera.web._gc_tuning import settle
from ephemera_services import metrics, problem_answers, readiness
from ephemera_services.body_limits import BodyLimits
from ephemera_services.databases import opened_engine
from ephemera_services.requests import Requests
from ephemera_services.settings import SystemSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class System:
    """What makes a service: its name, one line about it, its keys and tables."""

    name: str
    about: str
    catalogue: Catalogue
    tables: MetaData
    larger_bodies: Mapping[str, int] = field(default_factory=dict)
    """Bytes that a request's body may have, by path, where it is more than the usual."""
    identity: str | None = None
    """The name that its Redis must be marked with, if it must be; one of its own is marked by itself."""
    middleware: tuple[Middleware, ...] = ()
    """Nearest to the routes, inside of what systems share; the first one is the outermost of them."""


@dataclass(frozen=True)
class Resources:
    """What is open while an application runs."""

    store: Store
    engine: AsyncEngine
    urls: tuple[str, ...]
    """The Redis servers of the store, for those who look at them from outside; they may hold passwords."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    """What `/metrics` shows; a service adds metrics of its own."""


def application(
    settings: SystemSettings,
    system: System,
    start: Callable[[Resources], AbstractAsyncContextManager[Any]],
    *routers: APIRouter,
) -> FastAPI:
    """A FastAPI application with these routes, the first ones found first, and what systems share."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                resources = await stack.enter_async_context(opened(settings, system))
                app.state.metrics = metrics.collected(settings, resources)
                app.state.service = await stack.enter_async_context(start(resources))
                app.state.resources = resources
            except Exception as failure:
                app.state.failure = failure
                logger.exception("the service did not start")
                raise
            settle()
            yield

    app = FastAPI(
        title=f"Ephemera: {system.name}",
        description=system.about,
        version="1",
        lifespan=lifespan,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    problem_answers.install(app)
    for router in (*routers, readiness.router, metrics.routes(settings)):
        app.router.routes.extend(router.routes)  # not nested: each level is searched on every request
    app.user_middleware.extend(system.middleware)
    app.add_middleware(BodyLimits, larger=system.larger_bodies)
    app.add_middleware(Requests)  # the last one added is the outermost
    return app


@asynccontextmanager
async def opened(settings: SystemSettings, system: System) -> AsyncIterator[Resources]:
    """The store and the engine of a system, on servers of its own where none are named."""
    async with AsyncExitStack() as stack:
        url, database = settings.url, settings.database_url
        redis_url = url.reveal() if url is not None else await _embedded(stack, _valkey, settings, system)
        sql_url = database.reveal() if database else await _embedded(stack, _postgres, settings, system)
        queue_url = settings.queue_url.reveal() if settings.queue_url is not None else None
        if url is None and system.identity is not None:
            await mark_server(redis_url, system.identity)
        engine = await stack.enter_async_context(opened_engine(sql_url, system.tables))
        store = await stack.enter_async_context(
            connect(
                redis_url,
                system.catalogue,
                queue_url=queue_url,
                required=False,
                identity=system.identity,
            )
        )
        yield Resources(store, engine, (redis_url,) if queue_url is None else (redis_url, queue_url))


async def _embedded(
    stack: AsyncExitStack,
    begin: Callable[[Path | None, str], tuple[Any, str]],
    settings: SystemSettings,
    system: System,
) -> str:
    folder = None if settings.data is None else Path(settings.data) / system.name
    server, url = await asyncio.to_thread(begin, folder, system.name)
    stack.push_async_callback(asyncio.to_thread, server.stop)
    return url


def _valkey(folder: Path | None, _: str) -> tuple[Any, str]:
    server = embedded.valkey(data=None if folder is None else folder / "valkey")
    return server, server.url


def _postgres(folder: Path | None, name: str) -> tuple[Any, str]:
    server = embedded.postgres(data=None if folder is None else folder / "postgresql")
    return server, server.database(name)
