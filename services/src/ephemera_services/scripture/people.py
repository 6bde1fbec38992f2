"""Users, their plans, and what a plan has: SQL decides, and a minute of cache spares asking it.

A change is committed first and then dropped from the cache, so the next request has it. When Redis is away
just then the change stands, and what is cached lasts a minute at most.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed
from ephemera_services.runtime import problem
from ephemera_services.scripture.events import UserChanged, UserCreated
from ephemera_services.scripture.keys import FEATURES, PLANS
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.tables import plan_features, users

FREE = "free"
_PAID_ONLY = ("witnesses", "commentary")
_EVERYBODY = ("words", "xrefs", "ai")

logger = logging.getLogger(__name__)


class People:
    """Who uses the service, and what they may."""

    def __init__(self, engine: AsyncEngine, store: Store, outbox: Outbox) -> None:
        self._engine = engine
        self._plans, self._features = store[PLANS], store[FEATURES]
        self._outbox = outbox

    async def plan_of(self, user_id: str) -> str:
        """A user's plan; of somebody who is not known here, the free one."""
        return await self._plans.get(self._load_plan, user_id=user_id) or FREE

    async def has(self, plan: str, feature: str) -> bool:
        """Whether a plan has a feature."""
        return bool(await self._features.get(self._load_feature, plan_id=plan, feature=feature))

    async def create(self, user_id: UUID, email: str, name: str, plan: str) -> None:
        """Add a user, and tell others; 409 when the id or the address is taken."""
        row = {"id": user_id, "email": email, "name": name, "plan": plan}
        try:
            async with self._engine.begin() as sql:
                await sql.execute(insert(users).values(row))
                number = await self._outbox.add(sql, UserCreated(str(user_id)))
        except IntegrityError:
            raise problem(409, "There is a user with this id or address already.") from None
        await _dropped(self._plans.drop(user_id=str(user_id)))
        await self._outbox.publish(number)

    async def change_plan(self, user_id: UUID, plan: str) -> None:
        """Give a user a plan, from their next request on; 404 when there is none."""
        change = update(users).where(users.c.id == user_id).values(plan=plan)
        async with self._engine.begin() as sql:
            if not (await sql.execute(change)).rowcount:
                raise problem(404, "There is no such user.")
            number = await self._outbox.add(sql, UserChanged(str(user_id), plan))
        await _dropped(self._plans.drop(user_id=str(user_id)))
        await self._outbox.publish(number)

    async def change_feature(self, plan: str, feature: str, *, allowed: bool) -> None:
        """Give a plan a feature or take it away, from the next request on."""
        row = {"plan_id": plan, "feature": feature, "allowed": allowed}
        added = insert(plan_features).values(row)
        async with self._engine.begin() as sql:
            await sql.execute(
                added.on_conflict_do_update(index_elements=["plan_id", "feature"], set_={"allowed": allowed})
            )
        await _dropped(self._features.drop(plan_id=plan, feature=feature))

    async def _load_plan(self, user_id: str) -> str:
        async with self._engine.connect() as sql:
            found = await sql.execute(select(users.c.plan).where(users.c.id == UUID(user_id)))
            return found.scalar_one_or_none() or FREE

    async def _load_feature(self, plan_id: str, feature: str) -> bool:
        wanted = select(plan_features.c.allowed).where(
            plan_features.c.plan_id == plan_id, plan_features.c.feature == feature
        )
        async with self._engine.connect() as sql:
            return bool((await sql.execute(wanted)).scalar_one_or_none())


async def have_features(sql: AsyncConnection) -> None:
    """Give each plan the features it begins with; what an administrator changed stays."""
    rows = [
        {"plan_id": plan, "feature": feature, "allowed": plan != FREE or feature in _EVERYBODY}
        for plan in ("free", "paid", "ai")
        for feature in (*_PAID_ONLY, *_EVERYBODY)
    ]
    await sql.execute(insert(plan_features).values(rows).on_conflict_do_nothing())


async def _dropped(dropping: Awaitable[None]) -> None:
    try:
        await dropping
    except ConnectionFailed:
        logger.warning("a change is not told to the cache, which keeps the old for a minute at most")
