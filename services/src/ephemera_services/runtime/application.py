"""The FastAPI application of a service, and the sockets that it listens on.

    def create_app(settings: Settings) -> FastAPI:
        return create_application(settings, SERVICE, open_identity, auth_routes.router, profile_routes.router)

The application's lifespan opens the store and the SQL engine (`open_resources`) and then `start`, whose
result the routes find as `request.app.state.service`. Everything is closed in reverse order. Redis may be
unavailable at startup and at any time later; SQL must be available at startup.

Every application has `/healthz` and `/readyz`, `/metrics` behind a token (`health_routes`), errors as problem
documents (`problem_documents`), the library's `HardeningMiddleware`, request ids and one log line per request
(`middleware`, `logs`). In development it also has `/docs` and `/openapi.json` (`api_docs`). It keeps nothing
in ASGI's lifespan state, so it can be mounted under a prefix if the parent application runs
`app.router.lifespan_context(app)`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI

from ephemera.web import LOOPBACK_HOSTS, HardeningMiddleware, end_streams, security_headers, tune_gc
from ephemera_services.runtime import api_docs, health_routes
from ephemera_services.runtime.middleware import RequestLogging
from ephemera_services.runtime.problem_documents import install_problem_handlers
from ephemera_services.runtime.resources import Resources, ServiceDefinition, open_resources
from ephemera_services.runtime.settings import ServiceSettings

logger = logging.getLogger(__name__)

STOP_TIMEOUT = 10
"""Seconds that requests in progress get after SIGTERM; streams end at once."""

_DESCRIPTORS = 16  # of the listening socket
_AGAIN_AFTER = 0.1  # seconds


def create_application(
    settings: ServiceSettings,
    service: ServiceDefinition,
    start: Callable[[Resources], AbstractAsyncContextManager[Any]],
    *routers: APIRouter,
) -> FastAPI:
    """Return an application with these routes, matched in this order, and everything the services share."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                resources = await stack.enter_async_context(open_resources(settings, service))
                app.state.metrics = health_routes.store_metrics(settings, resources)
                if app.state.metrics is not None:
                    app.state.request_metrics = health_routes.RequestMetrics(resources.registry)
                    health_routes.measure_sql(resources.registry, resources.engine)
                app.state.service = await stack.enter_async_context(start(resources))
                app.state.resources = resources
                app.state.server_checks = health_routes.ServerChecks(resources)
            except Exception as failure:
                app.state.failure = failure
                logger.exception("the service did not start")
                raise
            tune_gc()
            yield

    app = FastAPI(
        title=f"Ephemera: {service.name}",
        description=service.description,
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if settings.development else None,
        separate_input_output_schemas=False,
    )
    install_problem_handlers(app)
    shared = [health_routes.router, health_routes.metrics_router(settings)]
    if settings.development:
        shared.append(api_docs.router)
    for router in (*routers, *shared):
        app.router.routes.extend(router.routes)  # not nested: each level is searched on every request
    app.user_middleware.extend(service.middleware)
    headers = security_headers(hsts=settings.hsts)
    app.add_middleware(
        HardeningMiddleware,
        hosts=settings.allowed_hosts or LOOPBACK_HOSTS,
        origins=settings.allowed_origins,
        headers=headers,
        body_limits=service.body_limits,
    )
    app.add_middleware(RequestLogging, headers=headers)  # the last one added is the outermost
    return app


class ServiceServer(uvicorn.Server):
    """A server that ends streams when it is asked to stop; uvicorn would wait for them, and then cut them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, end the streams, and wait for requests in progress."""
        ending = asyncio.create_task(_keep_ending_streams())
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()


async def _keep_ending_streams() -> None:
    """End streams until it is cancelled: a request in progress may open another."""
    while True:
        end_streams()
        await asyncio.sleep(_AGAIN_AFTER)


def bind_sockets(config: uvicorn.Config) -> list[socket.socket]:
    """Bind the sockets of a configuration for `uvicorn.Server.run`: one socket under several descriptors.

    uvloop accepts one connection per descriptor and loop iteration. An iteration also serves every request
    that is ready, so the busier a service is, the slower it accepts: a few hundred new clients per second
    overflow the kernel's backlog, and a dropped client retries after 1, 3, 7 and 15 seconds. With several
    descriptors of the same socket, that many connections are accepted per iteration.
    """
    first = config.bind_socket()
    return [first, *(first.dup() for _ in range(_DESCRIPTORS - 1))]
