"""Routes for load balancers, orchestrators and Prometheus: `/healthz`, `/readyz` and `/metrics`.

`GET /healthz` answers as long as the process runs and asks no server: a process must not be restarted because
a server is down. `GET /readyz` asks SQL and Redis. Without SQL the service is not ready (503). Without Redis
it is `degraded` and still ready: it serves what it can, and removing every process from the load balancer
would turn a partial outage into a complete one.

`GET /metrics` requires EPHEMERA_METRICS_TOKEN as a bearer token (in Prometheus: `authorization:
{credentials_file: ...}`), and without that setting there is no such route. Metrics reveal patterns, rules,
addresses and load, and most services are public, often behind a proxy on the same machine, so neither the
path nor the client's address would protect them. The token is compared in constant time. The response comes
from memory, so it works while every server is down. Services register their own metrics in
`Resources.registry`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from ephemera.errors import EphemeraError
from ephemera.operations.metrics import StoreMetrics
from ephemera.web import unavailable
from ephemera_services.runtime.problem_documents import NO_BACKEND, unauthorized
from ephemera_services.runtime.resources import Resources
from ephemera_services.runtime.settings import InvalidSettings, ServiceSettings

_TIMEOUT = 2.0  # seconds for each server
_MIN_TOKEN_LENGTH = 16  # characters
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
    sql: Literal["up"] = "up"


@router.get("/healthz", openapi_extra=NO_BACKEND)
async def alive() -> Alive:
    """Whether the process answers."""
    return Alive()


@router.get("/readyz")
async def ready(request: Request) -> Readiness:
    """Whether requests should be sent to this process."""
    resources: Resources = request.app.state.resources
    sql, redis = await asyncio.gather(_is_up(_ping_sql(resources)), _is_up(_ping_redis(resources)))
    if not sql:
        raise unavailable("The database does not answer.", retry_after=2)
    return Readiness(status="ready" if redis else "degraded", redis="up" if redis else "down")


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


async def _ping_redis(resources: Resources) -> None:
    store = resources.store
    nodes = {*store.client("cache").nodes(), *store.client("queue").nodes()}
    await asyncio.gather(*(node.call("PING") for node in nodes))


def store_metrics(settings: ServiceSettings, resources: Resources) -> StoreMetrics | None:
    """Collect the metrics of a service's store, if there is a token to read them with."""
    if settings.metrics_token is None:
        return None
    return StoreMetrics(resources.store, registry=resources.registry)


def metrics_router(settings: ServiceSettings) -> APIRouter:
    """Return a router with `/metrics`, or an empty one if there is no token."""
    routes = APIRouter(tags=["metrics"])
    if settings.metrics_token is None:
        return routes
    token = settings.metrics_token.reveal()
    if len(token) < _MIN_TOKEN_LENGTH:
        problem = f"it has {len(token)} characters; use at least {_MIN_TOKEN_LENGTH} random ones"
        raise InvalidSettings([f"EPHEMERA_METRICS_TOKEN: {problem}"])
    expected = hashlib.sha256(token.encode()).digest()

    @routes.get("/metrics", response_class=Response, responses=_CONTENT_TYPES, openapi_extra=NO_BACKEND)
    async def metrics(
        request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
    ) -> Response:
        """This process's metrics, for Prometheus."""
        if sent is None:
            raise unauthorized("Send the metrics token: Authorization: Bearer ...", token=False)
        # Digests have a fixed length, so that not even the token's length can be measured.
        digest = hashlib.sha256(sent.credentials.encode("utf-8", "replace")).digest()
        if not hmac.compare_digest(digest, expected):
            raise unauthorized("The metrics token is wrong.")
        found: StoreMetrics = request.app.state.metrics
        # Prometheus' text format takes 10 us per line: too long for the event loop when there are a thousand.
        exposition, content_type = await asyncio.to_thread(found.render, request.headers.get("accept", ""))
        return Response(exposition, media_type=content_type, headers={"cache-control": "no-store"})

    return routes
