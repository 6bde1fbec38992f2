"""The plans of organizations, and their limits, which every request looks up.

SQL has the plan of an organization; Redis caches its limits for five minutes. A change is committed first and
then invalidated in Redis, whose fills are fenced: the next request sees the new limits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera_services.runtime import problem
from ephemera_services.slides.keys import LIMITS, PlanLimits, SubscriptionStatus
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


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of an organization and the state of its subscription."""

    plan: PlanName
    requests_per_minute: int | None = None
    subscription_status: SubscriptionStatus = "active"
    period_end: datetime | None = None


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

    async def find(self, name: str) -> tuple[UUID, str, str]:
        """The id, name and plan of the organization with a name; 404 if there is none."""
        c = organizations.c
        async with self._engine.connect() as sql:
            found = await sql.execute(select(c.id, c.name, c.plan).where(func.lower(c.name) == name.lower()))
            row = found.one_or_none()
        if row is None:
            raise problem(404, "There is no such organization.")
        return row.id, row.name, row.plan

    async def change(self, organization_id: UUID, plan: PlanChange) -> None:
        """Set an organization's plan, effective from its next request on; 404 if it does not exist."""
        values = msgspec.structs.asdict(plan)
        changed = update(organizations).where(organizations.c.id == organization_id).values(**values)
        async with self._engine.begin() as sql:
            if not (await sql.execute(changed)).rowcount:
                raise problem(404, "There is no such organization.")
        await self._retries.run(lambda: self._cached.invalidate(organization_id=str(organization_id)))

    async def _load(self, organization_id: str) -> PlanLimits | None:
        c = organizations.c
        query = select(c.plan, c.requests_per_minute, c.subscription_status, c.period_end)
        async with self._engine.connect() as sql:
            row = (await sql.execute(query.where(c.id == UUID(organization_id)))).one_or_none()
        if row is None:
            return None
        plan = PLANS[row.plan]
        return msgspec.structs.replace(
            plan,
            requests_per_minute=row.requests_per_minute or plan.requests_per_minute,
            subscription_status=row.subscription_status,
            period_end=row.period_end,
        )
