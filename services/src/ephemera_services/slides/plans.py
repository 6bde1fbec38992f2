"""The plans of organizations, and their limits, which every request looks up.

SQL has the plan of an organization; Redis caches its limits for five minutes. A change is committed first and
then invalidated in Redis, whose fills are fenced: the next request sees the new limits.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera_services.runtime import problem
from ephemera_services.slides.keys import LIMITS, PlanLimits
from ephemera_services.slides.redis_retry import RetryQueue
from ephemera_services.slides.tables import organizations

PlanName = Literal["free", "pro", "team", "enterprise"]

_FEATURES = ["api_access", "brand_kit", "webhooks"]


def _plan(
    name: str,
    presentations: int | None,
    file: int,
    tokens: int | None,
    storage: int,
    rate: int,
    features: int,
) -> PlanLimits:
    return PlanLimits(
        plan_name=name,
        max_presentations_per_month=presentations,
        max_file_size_mb=file,
        ai_tokens_per_month=tokens,
        storage_gb=storage,
        requests_per_minute=rate,
        features=_FEATURES[:features],
        subscription_status="active",
    )


PLANS = {
    "free": _plan("free", 5, 10, 200_000, 1, 10, 0),
    "pro": _plan("pro", 50, 25, 2_000_000, 10, 60, 1),
    "team": _plan("team", 100, 50, 5_000_000, 50, 120, 3),
    "enterprise": _plan("enterprise", None, 100, None, 1000, 600, 3),
}


class Plans:
    """The plans of organizations."""

    def __init__(self, engine: AsyncEngine, store: Store, retries: RetryQueue) -> None:
        self._engine = engine
        self._cached = store[LIMITS]
        self._retries = retries

    async def limits(self, organization_id: str) -> PlanLimits:
        """The limits of an organization."""
        found = await self._cached.get(self._load, organization_id=organization_id)
        if found is None:
            raise problem(404, "There is no such organization.")
        return found

    async def change(self, organization_id: UUID, plan: PlanName, requests_per_minute: int | None) -> None:
        """Set an organization's plan, effective from its next request on; 404 if it does not exist."""
        changed = (
            update(organizations)
            .where(organizations.c.id == organization_id)
            .values(plan=plan, requests_per_minute=requests_per_minute)
        )
        async with self._engine.begin() as sql:
            if not (await sql.execute(changed)).rowcount:
                raise problem(404, "There is no such organization.")
        await self._retries.run(lambda: self._cached.invalidate(organization_id=str(organization_id)))

    async def _load(self, organization_id: str) -> PlanLimits | None:
        c = organizations.c
        wanted = select(c.plan, c.requests_per_minute, c.subscription_status)
        async with self._engine.connect() as sql:
            row = (await sql.execute(wanted.where(c.id == UUID(organization_id)))).one_or_none()
        if row is None:
            return None
        plan = PLANS[row.plan]
        return msgspec.structs.replace(
            plan,
            requests_per_minute=row.requests_per_minute or plan.requests_per_minute,
            subscription_status=row.subscription_status,
        )
