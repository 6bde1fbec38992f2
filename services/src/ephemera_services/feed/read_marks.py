"""Read marks: which insights a user has read.

A mark is on an insight and not on an item, because the items of the next version are others: what was read
stays read wherever it is clustered, and an item with something new is unread again. Marks end with their
insights.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.feed.tables import is_one_of


class ReadMarks:
    """The read marks of all users."""

    def __init__(self, engine: AsyncEngine, marks: sa.Table, insights: sa.Table) -> None:
        self._engine = engine
        self._marks = marks
        self._insights = insights

    async def add(self, user_id: str, insight_ids: Sequence[int]) -> None:
        """Mark insights as read, those that still exist."""
        columns = sa.literal(user_id), self._insights.c.insight_id, sa.func.clock_timestamp()
        found = sa.select(*columns).where(is_one_of(self._insights.c.insight_id, insight_ids))
        row = insert(self._marks).from_select(["user_id", "insight_id", "read_at"], found)
        async with self._engine.begin() as sql:
            await sql.execute(row.on_conflict_do_nothing())

    async def remove(self, user_id: str, insight_ids: Sequence[int]) -> None:
        """Mark insights as unread."""
        async with self._engine.begin() as sql:
            await sql.execute(sa.delete(self._marks).where(self._of(user_id, insight_ids)))

    async def among(self, user_id: str, insight_ids: Sequence[int]) -> set[int]:
        """Return those of some insights that a user has read."""
        query = sa.select(self._marks.c.insight_id).where(self._of(user_id, insight_ids))
        async with self._engine.connect() as sql:
            return set((await sql.execute(query)).scalars())

    def _of(self, user_id: str, insight_ids: Sequence[int]) -> sa.ColumnElement[bool]:
        c = self._marks.c
        return sa.and_(c.user_id == user_id, is_one_of(c.insight_id, insight_ids))
