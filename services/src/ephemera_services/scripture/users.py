"""Users, their plans, and the features of plans: stored in SQL, and cached for a minute.

A change is committed first and then invalidated in the cache, so the next request sees it. If Redis is down
at that moment the change stands, and the cached value lasts at most a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed
from ephemera_services.runtime import (
    UserChanged,
    UserCreated,
    UserDeleted,
    UserEvent,
    UserUpdated,
    advisory_lock,
    problem,
)
from ephemera_services.scripture.keys import FEATURES, PLANS
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.tables import plan_features, user_history, users

FREE = "free"
_PAID_ONLY = ("witnesses", "commentary")
_ALL_PLANS = ("words", "xrefs", "ai")

logger = logging.getLogger(__name__)


class Users:
    """The users of the service and their plans."""

    def __init__(self, engine: AsyncEngine, store: Store, outbox: Outbox) -> None:
        self._engine = engine
        self._plans, self._features = store[PLANS], store[FEATURES]
        self._outbox = outbox

    async def plan_of(self, user_id: str) -> str:
        """A user's plan; the free one for an unknown user."""
        return await self._plans.get(self._load_plan, user_id=user_id) or FREE

    async def has(self, plan: str, feature: str) -> bool:
        """Whether a plan has a feature."""
        return bool(await self._features.get(self._load_feature, plan_id=plan, feature=feature))

    async def create(self, user_id: UUID, email: str, name: str, plan: str) -> None:
        """Create a user and publish an event; 409 if the id or the address is taken."""
        row = {"id": user_id, "email": email, "name": name, "plan": plan}
        try:
            async with self._engine.begin() as sql:
                await sql.execute(insert(users).values(row))
                number = await self._outbox.add(sql, UserCreated(str(user_id)))
        except IntegrityError:
            raise problem(409, "A user with this id or address already exists.") from None
        await _best_effort(self._plans.invalidate(user_id=str(user_id)))
        await self._outbox.publish(number)

    async def change_plan(self, user_id: UUID, plan: str) -> None:
        """Set a user's plan, effective from their next request on; 404 if there is no such user."""
        change = update(users).where(users.c.id == user_id).values(plan=plan)
        async with self._engine.begin() as sql:
            if not (await sql.execute(change)).rowcount:
                raise problem(404, "There is no such user.")
            number = await self._outbox.add(sql, UserChanged(str(user_id), plan))
        await _best_effort(self._plans.invalidate(user_id=str(user_id)))
        await self._outbox.publish(number)

    async def follow(self, sql: AsyncConnection, event: UserEvent) -> None:
        """Do with a user what identity did. An event that arrives after the deletion revives no one."""
        await advisory_lock(sql, f"user {event.user_id}")
        match event:
            case UserCreated(email=email) if email:
                await _copy(sql, event)
            case UserUpdated():
                changed = update(users).where(users.c.id == UUID(event.user_id))
                await sql.execute(changed.values(email=event.email, name=event.name))
            case UserDeleted():
                await sql.execute(delete(users).where(users.c.id == UUID(event.user_id)))
                await _best_effort(self._plans.invalidate(user_id=event.user_id))

    async def change_feature(self, plan: str, feature: str, *, allowed: bool) -> None:
        """Add a feature to a plan or remove it, effective from the next request on."""
        row = {"plan_id": plan, "feature": feature, "allowed": allowed}
        added = insert(plan_features).values(row)
        async with self._engine.begin() as sql:
            await sql.execute(
                added.on_conflict_do_update(index_elements=["plan_id", "feature"], set_={"allowed": allowed})
            )
        await _best_effort(self._features.invalidate(plan_id=plan, feature=feature))

    async def _load_plan(self, user_id: str) -> str:
        async with self._engine.connect() as sql:
            found = await sql.execute(select(users.c.plan).where(users.c.id == UUID(user_id)))
            return found.scalar_one_or_none() or FREE

    async def _load_feature(self, plan_id: str, feature: str) -> bool:
        query = select(plan_features.c.allowed).where(
            plan_features.c.plan_id == plan_id, plan_features.c.feature == feature
        )
        async with self._engine.connect() as sql:
            return bool((await sql.execute(query)).scalar_one_or_none())


async def ensure_features(sql: AsyncConnection) -> None:
    """Insert the default features of each plan; changes of an administrator stay."""
    rows = [
        {"plan_id": plan, "feature": feature, "allowed": plan != FREE or feature in _ALL_PLANS}
        for plan in ("free", "paid", "ai")
        for feature in (*_PAID_ONLY, *_ALL_PLANS)
    ]
    await sql.execute(insert(plan_features).values(rows).on_conflict_do_nothing())


async def _copy(sql: AsyncConnection, event: UserCreated) -> None:
    """Create a user of identity on the free plan, unless they were deleted or have a row already."""
    gone = select(user_history.c.number).where(
        user_history.c.user_id == event.user_id, user_history.c.what == "deleted"
    )
    if (await sql.execute(gone.limit(1))).one_or_none() is None:
        row = {"id": UUID(event.user_id), "email": event.email, "name": event.name, "plan": FREE}
        await sql.execute(insert(users).values(row).on_conflict_do_nothing())


async def _best_effort(invalidation: Awaitable[None]) -> None:
    try:
        await invalidation
    except ConnectionFailed:
        logger.warning("a change could not be invalidated; the cache is stale for at most a minute")
