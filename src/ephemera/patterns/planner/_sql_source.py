"""Candidates out of SQL alone: what a tick reads while Redis is away.

Channels come in the order of their last insight, from where the planner's row says it has come, so many in
a tick. SQL counts, and gives those who are due, so many in a tick; users who wait (handed over, or
postponed) are left out, so the next tick goes on with others. When more are due than were given, the row
stays where it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping

from ephemera.patterns.planner._ledger import Ledger
from ephemera.patterns.planner._queries import Truth
from ephemera.patterns.planner._source import Begun, Chunk, Mode


class SqlSource:
    """Reads the truth."""

    mode: Mode = "sql"

    def __init__(self, truth: Truth, ledger: Ledger) -> None:
        self._truth = truth
        self._ledger = ledger
        self._more = False

    async def begin(self, most: int) -> Begun:
        """The time, and channels since the last one that was looked at."""
        state = await self._ledger.state()
        dirty = await self._truth.dirty_since(state.examined_at, most)
        newer = sum(at > state.examined_at for at in dirty.values())
        self._more = False
        return Begun(state.now, dirty, newer == most)

    async def candidates(self, begun: Begun, most: int) -> AsyncGenerator[Chunk, None]:
        """Users to look at again, users whose time is over, and due subscribers."""
        rechecked = await self._truth.rechecks(begun.now, most)
        users = {*rechecked, *await self._truth.overdue(begun.now, most)}
        if users:
            rows = await self._truth.users(users)
            yield Chunk({user: row.facts for user, row in rows.items()}, rechecked)
        if begun.dirty:
            rows = await self._truth.due_subscribers(list(begun.dirty), begun.now, most)
            self._more = len(rows) == most
            yield Chunk({user: row.facts for user, row in rows.items()})

    async def postpone(self, waits: Mapping[str, int], quiet: Collection[str], now: int) -> None:
        """Remember who is to be looked at again."""
        await self._ledger.postpone(waits, quiet, now)

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Set the marks."""
        return await self._ledger.claim(users, now)

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Take claims back."""
        await self._ledger.release(enqueued_before, now)

    async def settle(self, begun: Begun) -> None:
        """Move on, past the last channel or to this tick's time."""
        if not self._more:
            last = max(begun.dirty.values(), default=0) if begun.full else begun.now
            await self._ledger.move_state(examined_at=int(last))
