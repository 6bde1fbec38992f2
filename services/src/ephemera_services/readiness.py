"""Whether a service is alive, and whether it is ready: for balancers and orchestrators.

`GET /healthz` answers while the process does, and asks nobody: a process is not restarted because a server
is away. `GET /readyz` asks SQL and Redis. Without SQL the service is not ready (503). Without Redis it is
`degraded` and still ready: it serves what it can, and taking every process out of the balancer would make an
outage of all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from ephemera.errors import EphemeraError
from ephemera.web._problems import unavailable
from ephemera_services.problem_answers import UNTOUCHED

if TYPE_CHECKING:
    from ephemera_services.application import Resources

_PATIENCE = 2.0  # seconds for each answer

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """What the service can do now: all of it, or what needs no Redis."""

    status: Literal["ready", "degraded"]
    redis: Literal["up", "down"]
    sql: Literal["up"] = "up"


@router.get("/healthz", openapi_extra=UNTOUCHED)
async def alive() -> Alive:
    """Whether the process answers."""
    return Alive()


@router.get("/readyz")
async def ready(request: Request) -> Readiness:
    """Whether requests should be sent here."""
    resources: Resources = request.app.state.resources
    sql, redis = await asyncio.gather(_up(_ask_sql(resources)), _up(_ask_redis(resources)))
    if not sql:
        raise unavailable("The database does not answer.", retry_after=2)
    return Readiness(status="ready" if redis else "degraded", redis="up" if redis else "down")


async def _up(asking: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            await asking
    except (EphemeraError, SQLAlchemyError, OSError, TimeoutError):
        return False
    return True


async def _ask_sql(resources: Resources) -> None:
    async with resources.engine.connect() as sql:
        await sql.execute(text("SELECT 1"))


async def _ask_redis(resources: Resources) -> None:
    store = resources.store
    nodes = {*store.client("cache").nodes(), *store.client("queue").nodes()}
    await asyncio.gather(*(node.call("PING") for node in nodes))
