"""The editor: makes changes, records them, and publishes them to every page and client that shows them.

Pages are invalidated after the commit. If Redis is down then, the answer is 503 and the change stands: repeat
the request, or wait until the pages expire; sessions that carry an old role end as soon as Redis is back.
Changes of final results are stricter: they are committed while no other process can store the affected pages,
one at a time, so the table and the results never disagree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.patterns.http_cache import PageRef
from ephemera_services.league.administration.edits import Edit, RowChange, recorded, undo
from ephemera_services.league.administration_tables import changes
from ephemera_services.league.affected_pages import Affected, pages_of
from ephemera_services.league.keys import (
    ADMINS,
    FINALIZATION_LOCK,
    SESSIONS,
    SITE,
    WINDOWS,
    AdminEvent,
    Session,
)
from ephemera_services.league.tables import pending_sign_outs, users
from ephemera_services.runtime import PendingSignOuts, advisory_lock, problem

_LOCK_TIMEOUT = 10.0  # seconds to wait for another change of results
_BATCH = 500
"""Pages to delete in one step."""
_WINDOW_COLUMNS = {"kickoff", "status"}
Authorize = Callable[[AsyncConnection, Any], Awaitable[None]]
"""Refuses a change that the caller must not undo, in a transaction."""


class Editor:
    """Changes of the league's data by administrators and helpers."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._site, self._windows = store[SITE], store[WINDOWS]
        self._admins = store[ADMINS]
        self.sign_outs = PendingSignOuts(engine, pending_sign_outs, store[SESSIONS].end_all)
        self._lock = store[FINALIZATION_LOCK]

    @asynccontextmanager
    async def edit(
        self, by: Session, action: str, *, match_id: int | None = None, note: str | None = None
    ) -> AsyncIterator[Edit]:
        """Make a change in the block: it is committed and published at its end."""
        async with self._engine.begin() as sql:
            edit = Edit(sql, by, action, match_id=match_id, note=note)
            yield edit
            await edit.save()
            await self.sign_outs.add(sql, *_users(edit.rows))
        await self.publish(edit.rows, edit.match_id)

    async def publish(self, rows: Sequence[RowChange], match_id: int | None) -> None:
        """Invalidate what shows a committed change; repeatable."""
        affected = await self.pages_of(rows)
        await self._windows_change(rows)
        await self._site.bump(*affected.bumped)
        await self._publish_to_people(rows, affected, match_id)

    @asynccontextmanager
    async def changing_results(
        self, rows: Sequence[RowChange], match_id: int | None
    ) -> AsyncIterator[list[PageRef]]:
        """Commit a change of these rows in the block, while no process can store a page that shows them.

        At the end of the block the list has the pages that have changed.
        """
        pages = (await self.pages_of(rows)).bumped
        async with self._lock.hold(timeout=_LOCK_TIMEOUT), self._site.changing(*pages):
            yield pages
        affected = await self.pages_of(rows)  # again: predictions may have been placed since
        pages += affected.deleted
        await self._windows_change(rows)
        await self._publish_to_people(rows, affected, match_id)

    async def pages_of(self, rows: Sequence[RowChange]) -> Affected:
        """The pages that show these rows."""
        async with self._engine.connect() as sql:
            return await pages_of(sql, rows)

    async def _windows_change(self, rows: Sequence[RowChange]) -> None:
        if any(row.table == "matches" and row.columns() & _WINDOW_COLUMNS for row in rows):
            await self._windows.invalidate()

    async def undo(self, change_id: int, by: Session, authorize: Authorize) -> Edit:
        """Undo a change; the edit that did so."""
        change = await self.change(change_id)
        rows = recorded(change)
        refuse_own_account(rows, by)
        async with self._engine.begin() as sql:
            await authorize(sql, change)
        async with self.changing_results(rows, change.match_id), self._engine.begin() as sql:
            await authorize(sql, change)  # again: the match may be final by now
            if _users(rows):
                await require_administrator(sql, by)
            await self.sign_outs.add(sql, *_users(rows))
            return await undo(sql, by, change)

    async def change(self, change_id: int) -> Any:
        """A change of the history; 404 if there is none."""
        async with self._engine.connect() as sql:
            found = (await sql.execute(select(changes).where(changes.c.id == change_id))).one_or_none()
        if found is None:
            raise problem(404, "There is no such change.")
        return found

    async def _publish_to_people(
        self, rows: Sequence[RowChange], affected: Affected, match_id: int | None
    ) -> None:
        for batch in _batches(affected.deleted):
            await self._site.delete(*batch)
        for user_id in _users(rows):
            await self.sign_outs.end(user_id)
        await self._admins.broadcast(AdminEvent(_kind(rows), match_id))


def _users(rows: Sequence[RowChange]) -> list[int]:
    """The users whose sessions end, because they carry the role."""
    return sorted({row.id for row in rows if row.table == "users"})


def _kind(rows: Sequence[RowChange]) -> Literal["finalized", "score", "event", "ads", "changed"]:
    """What administrators see of a change at once; the rest they request."""
    if any(row.table == "matches" and row.value("status") == "finished" for row in rows):
        return "finalized"
    tables = {row.table for row in rows}
    if any(row.table == "matches" and row.columns() & {"home_goals", "away_goals"} for row in rows):
        return "score"
    return "event" if "events" in tables else "ads" if "ads" in tables else "changed"


def refuse_own_account(rows: Sequence[RowChange], by: Session) -> None:
    """409 if a change is one of the caller's own account: no one locks themselves out."""
    if any(row.table == "users" and row.id == int(by.user_id) for row in rows):
        raise problem(409, "Your own account is changed by another administrator.")


async def require_administrator(sql: AsyncConnection, by: Session) -> None:
    """Begin a change of a user; 403 if the caller is no administrator any more, so that one always remains.

    Such changes run one after the other: of two administrators who demote each other at once, the second is
    refused. No one demotes or blocks themselves (`refuse_own_account`).
    """
    await advisory_lock(sql, "administrators of the league")
    caller = select(users.c.id).where(users.c.id == int(by.user_id), users.c.role == "admin")
    if (await sql.execute(caller.where(users.c.blocked_at.is_(None)))).one_or_none() is None:
        raise problem(403, "You are no administrator any more.")


def _batches(pages: Sequence[PageRef]) -> Iterator[Sequence[PageRef]]:
    for start in range(0, len(pages), _BATCH):
        yield pages[start : start + _BATCH]
