"""Routes for load balancers, orchestrators and Prometheus: `/healthz`, `/readyz` and `/metrics`.

`GET /healthz` answers as long as the process runs and asks no server: a process must not be restarted because
a server is down. `GET /readyz` asks SQL and Redis. Without SQL the service is not ready (503). Without Redis
it is `degraded` and still ready: it serves what it can, and removing every process from the load balancer
would turn a partial outage into a complete one. It names role and address of each Redis server that does not
answer. Anyone may ask, so requests share the answers of the servers for a second.

`GET /metrics` requires EPHEMERA_METRICS_TOKEN as a bearer token (in Prometheus: `authorization:
{credentials_file: ...}`), and without that setting there is no such route. Metrics reveal patterns, rules,
addresses and load, and most services are public, often behind a proxy on the same machine, so neither the
path nor the client's address would protect them. The token is compared in constant time. The response comes
from memory, so it works while every server is down. It has the requests by route and status, with their
latency, and the process (`RequestMetrics`); services register their own metrics in `Resources.registry`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool

from ephemera.errors import EphemeraError
from ephemera.keyspace import Role
from ephemera.operations.metrics import HTTP_REQUESTS, SQL_CONNECTIONS, StoreMetrics
from ephemera.web import unavailable
from ephemera.wire import NodeClient
from ephemera_services.runtime.bearer_tokens import BearerTokens
from ephemera_services.runtime.problem_documents import NO_BACKEND, unauthorized
from ephemera_services.runtime.resources import Resources
from ephemera_services.runtime.settings import ServiceSettings

_ROLES: tuple[Role, ...] = ("cache", "queue")
_TIMEOUT = 2.0  # seconds for each server
_MAX_AGE = 1.0  # seconds for which requests share what the servers have answered
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"))
_BEARER = HTTPBearer(scheme_name="MetricsToken", auto_error=False)
_CONTENT_TYPES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}
}

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Whether the service is fully available, or only what works without Redis."""

    status: Literal["ready", "degraded"]
    redis: Literal["up", "down"]
    """`down` if one of its servers is."""
    sql: Literal["up"] = "up"
    unavailable: list[str] = []
    """Role and address of each Redis server that does not answer."""


@router.get("/healthz", openapi_extra=NO_BACKEND)
async def alive() -> Alive:
    """Whether the process answers."""
    return Alive()


@router.get("/readyz")
async def ready(request: Request) -> Readiness:
    """Whether requests should be sent to this process."""
    checks: ServerChecks = request.app.state.server_checks
    sql, down = await checks.latest()
    if not sql:
        raise unavailable("The database does not answer.", retry_after=2)
    return Readiness(status="degraded" if down else "ready", redis="down" if down else "up", unavailable=down)


class ServerChecks:
    """Whether the servers of a service answered, at most a second ago."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._checking = asyncio.Lock()
        self._found: tuple[bool, list[str]] = (False, [])
        self._until = 0.0

    async def latest(self) -> tuple[bool, list[str]]:
        """Whether SQL answers, and the Redis servers that do not."""
        async with self._checking:
            if time.monotonic() >= self._until or self._has_lost_a_server():
                sql = _is_up(_ping_sql(self._resources))
                self._found = await asyncio.gather(sql, _servers_down(self._resources))
                self._until = time.monotonic() + _MAX_AGE
        return self._found

    def _has_lost_a_server(self) -> bool:
        """Whether one that answered has been lost since: that is known before the second is over."""
        return not self._found[1] and not all(node.up for node in _nodes(self._resources))


def _nodes(resources: Resources) -> Iterator[NodeClient]:
    for role in _ROLES:
        yield from resources.store.client(role).nodes()


async def _is_up(ping: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT):
            await ping
    except (EphemeraError, SQLAlchemyError, OSError, TimeoutError):
        return False
    return True


async def _ping_sql(resources: Resources) -> None:
    async with resources.engine.connect() as sql:
        await sql.execute(text("SELECT 1"))


async def _servers_down(resources: Resources) -> list[str]:
    """Each Redis server that does not answer, with the roles it has here."""
    roles: dict[NodeClient, list[str]] = {}
    unknown: list[str] = []
    for role in _ROLES:
        nodes = resources.store.client(role).nodes()
        for node in nodes:
            roles.setdefault(node, []).append(role)
        unknown += [] if nodes else [f"{role}: no server is connected"]
    answers = await asyncio.gather(*(_is_up(_ping(node)) for node in roles))
    down = [node for node, up in zip(roles, answers, strict=True) if not up]
    return [*unknown, *(f"{' and '.join(roles[node])}: {node.endpoint}" for node in down)]


async def _ping(node: NodeClient) -> None:
    await node.call("PING")


def store_metrics(settings: ServiceSettings, resources: Resources) -> StoreMetrics | None:
    """Collect the metrics of a service's store, if there is a token to read them with."""
    if settings.metrics_token is None:
        return None
    return StoreMetrics(resources.store, registry=resources.registry)


class RequestMetrics:
    """Requests by route, method and status with the time to their first byte, and figures of the process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        self._durations = Histogram(
            HTTP_REQUESTS.name, HTTP_REQUESTS.help, HTTP_REQUESTS.labels, registry=registry
        )

    def observe(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request; unknown paths and methods share a label, so that no client can add more."""
        known = method if method in _METHODS else "other"
        self._durations.labels(known, route or "other", str(status)).observe(seconds)


def measure_sql(registry: CollectorRegistry, engine: AsyncEngine) -> None:
    """Show how many connections of the pool are used and idle, and how many there may be."""
    gauge = Gauge(SQL_CONNECTIONS.name, SQL_CONNECTIONS.help, SQL_CONNECTIONS.labels, registry=registry)

    def pool() -> QueuePool:
        found = engine.sync_engine.pool  # another one after `dispose`
        if not isinstance(found, QueuePool):
            raise TypeError(f"{found!r} has no connections to count")
        return found

    gauge.labels("used").set_function(lambda: pool().checkedout())
    gauge.labels("idle").set_function(lambda: pool().checkedin())
    gauge.labels("limit").set_function(lambda: pool().size())


def metrics_router(settings: ServiceSettings) -> APIRouter:
    """Return a router with `/metrics`, or an empty one if there is no token."""
    routes = APIRouter(tags=["metrics"])
    if settings.metrics_token is None:
        return routes
    tokens = BearerTokens("EPHEMERA_METRICS_TOKEN", settings.metrics_token)

    @routes.get("/metrics", response_class=Response, responses=_CONTENT_TYPES, openapi_extra=NO_BACKEND)
    async def metrics(
        request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
    ) -> Response:
        """This process's metrics, for Prometheus."""
        if sent is None:
            raise unauthorized("Send the metrics token: Authorization: Bearer ...", token=False)
        if not tokens.accepts(sent.credentials):
            raise unauthorized("The metrics token is wrong.")
        found: StoreMetrics = request.app.state.metrics
        # Prometheus' text format takes 10 us per line: too long for the event loop when there are a thousand.
        exposition, content_type = await asyncio.to_thread(found.render, request.headers.get("accept", ""))
        return Response(exposition, media_type=content_type, headers={"cache-control": "no-store"})

    return routes
