"""Edits: changes of rows that record what they change, and their undo.

An edit runs in the caller's transaction. Each statement locks its row, records the columns it sets before and
after, and is stored with the others in one row of `changes`. A counter such as a score is added to rather
than set, so that two people who record goals at the same time both count.

An undo is an edit in the other direction. It requires that the columns still have the values that the change
gave them; otherwise something was built upon it, and that must be undone first. Counters are subtracted from.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import (
    ColumnElement,
    DateTime,
    Row,
    Table,
    Update,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.league.administration_tables import assignments, changes, players
from ephemera_services.league.keys import Session
from ephemera_services.league.points import points_update
from ephemera_services.league.tables import (
    ads,
    clubs,
    comments,
    competitions,
    events,
    matches,
    metadata,
    predictions,
    seasons,
    users,
)
from ephemera_services.runtime import problem

TABLES = {
    str(table.name): table
    for table in (
        *(competitions, seasons, clubs, players, matches, events, assignments, comments, users, ads),
    )
}
"""The tables that edits change."""
SERVICE = Session("0", "service", "admin")
"""Who makes the changes that no user asks for."""
_RESULT = {"status", "home_goals", "away_goals"}
_META = {"status", "kickoff", "venue", "stage", "round", "season_id", "home_id", "away_id"}


class RowChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to one row: `before` is None if it was inserted, `after` if it was deleted."""

    table: str
    id: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    added: dict[str, int] = {}
    """What was added to its counters."""

    def columns(self) -> set[str]:
        """The columns that have changed."""
        before, after = self.before or {}, self.after or {}
        return {*self.added, *(name for name in {*before, *after} if before.get(name) != after.get(name))}

    def value(self, name: str) -> Any:
        """A column of the row, before or after."""
        return (self.after or self.before or {}).get(name)


class Edit:
    """A change that is being made by a user."""

    def __init__(
        self,
        sql: AsyncConnection,
        by: Session,
        action: str,
        *,
        match_id: int | None = None,
        request_id: UUID | None = None,
        note: str | None = None,
        undoes: int | None = None,
    ) -> None:
        self.sql = sql
        self.rows: list[RowChange] = []
        self.match_id = match_id
        self.action = action
        self.erase = False
        """Whether the history keeps no values."""
        self._values = {
            "by_id": int(by.user_id) or None,
            "by_name": by.name,
            "action": action,
            "request_id": request_id,
            "note": note,
            "undoes": undoes,
        }

    async def insert(self, table: Table, **values: Any) -> int:
        """Insert a row; its id. 409 if there is one like it, 404 if it refers to one that does not exist."""
        try:
            async with self.sql.begin_nested():
                statement = insert(table).values(values).returning(table)
                row = (await self.sql.execute(statement)).one()
        except IntegrityError as refused:
            raise _conflict(refused, table) from None
        self.rows.append(RowChange(str(table.name), row.id, None, _image(row)))
        return int(row.id)

    async def update(self, table: Table, row_id: int, **values: Any) -> Row[Any]:
        """Set columns of a row; the row before. 404 if it does not exist."""
        before = await lock(self.sql, table, row_id)
        await self._write(table, row_id, values)
        after = _image(await lock(self.sql, table, row_id))
        kept = {name: _image(before)[name] for name in values}
        self.rows.append(RowChange(str(table.name), row_id, kept, {name: after[name] for name in values}))
        return before

    async def add(self, table: Table, row_id: int, **numbers: int) -> None:
        """Add numbers to counters of a row."""
        await self._write(table, row_id, {name: table.c[name] + by for name, by in numbers.items()})
        self.rows.append(RowChange(str(table.name), row_id, {}, {}, numbers))

    async def delete(self, table: Table, row_id: int) -> None:
        """Delete a row that nothing refers to: 409 if something does, 404 if it does not exist."""
        before = await lock(self.sql, table, row_id)
        for other in metadata.sorted_tables:
            for key in other.foreign_keys:
                if key.column.table is table and other is not changes:
                    await self._refuse_if_used(select(func.count()).where(key.parent == row_id), other.name)
        await self.sql.execute(delete(table).where(table.c.id == row_id))
        self.rows.append(RowChange(str(table.name), row_id, _image(before), None))

    async def save(self) -> None:
        """Store the change in the history, with what follows from it: points and revisions.

        An edit that has changed nothing, as one that is repeated, is not stored.
        """
        await _settle(self.sql, self.rows)
        await _count_revisions(self.sql, self.rows)
        if not any(
            row.before is None or row.after is None or row.columns() - {"minute"} for row in self.rows
        ):
            return
        rows = [] if self.erase else msgspec.to_builtins(self.rows)
        statement = insert(changes).values(rows=rows, match_id=self.match_id, **self._values)
        try:
            await self.sql.execute(statement)
        except IntegrityError:
            raise problem(409, "This was already done.") from None

    async def revert(self, row: RowChange) -> None:
        """Undo the change of one row."""
        table = TABLES[row.table]
        if row.before is None:
            await self.delete(table, row.id)
        elif row.after is None:
            await self.insert(table, id=row.id, **_values(table, row.before))
        else:
            current = _image(await lock(self.sql, table, row.id))
            changed = any(current[name] != value for name, value in row.after.items())
            if changed or any(current[name] < by for name, by in row.added.items()):
                raise problem(409, "A later change builds upon this one: undo that one first.")
            if row.before:
                await self.update(table, row.id, **_values(table, row.before))
            if row.added:
                await self.add(table, row.id, **{name: -by for name, by in row.added.items()})

    async def _write(self, table: Table, row_id: int, values: dict[str, Any]) -> None:
        try:
            async with self.sql.begin_nested():
                await self.sql.execute(update(table).where(table.c.id == row_id).values(values))
        except IntegrityError as refused:
            raise _conflict(refused, table) from None

    async def _refuse_if_used(self, count: Any, by: str) -> None:
        number = (await self.sql.execute(count)).scalar_one()
        if number:
            raise problem(409, f"It is in use: {number} of {by} refer to it.")


async def lock(sql: AsyncConnection, table: Table, row_id: int) -> Row[Any]:
    """Return a row, locked until the end of the transaction; 404 if it does not exist."""
    row = (await sql.execute(select(table).where(table.c.id == row_id).with_for_update())).one_or_none()
    if row is None:
        raise problem(404, f"There is no such {_SINGULAR[table.name]}.")
    return row


async def repeated(
    sql: AsyncConnection, request_id: UUID, by: Session, match_id: int | None
) -> Row[Any] | None:
    """The change that a request has made before, if it is repeated; 409 if the id is that of another one."""
    found = (await sql.execute(select(changes).where(changes.c.request_id == request_id))).one_or_none()
    if found is not None and (found.by_id, found.match_id) != (int(by.user_id), match_id):
        raise problem(409, "Another request had this id.")
    return found


async def undo(sql: AsyncConnection, by: Session, change: Row[Any]) -> Edit:
    """Undo a change, in the caller's transaction."""
    done = await sql.execute(select(changes.c.id).where(changes.c.undoes == change.id))
    if done.first() is not None:
        raise problem(409, "This was already undone.")
    rows = recorded(change)
    if not rows:
        raise problem(409, "This cannot be undone.")
    edit = Edit(sql, by, f"undo: {change.action.removeprefix('undo: ')}", undoes=change.id)
    edit.match_id = change.match_id
    for row in reversed(rows):
        await edit.revert(row)
    await edit.save()
    return edit


def recorded(change: Row[Any]) -> list[RowChange]:
    """What a stored change did to rows."""
    return msgspec.convert(change.rows, list[RowChange])


def _image(row: Row[Any]) -> dict[str, Any]:
    """A row as JSON, without what a history must not keep."""
    kept = {name: value for name, value in row._mapping.items() if name not in _UNRECORDED}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in kept.items()
        if name != "id"
    }


_UNRECORDED = {"password_hash", "meta_revision", "live_revision", "comments_revision"}
_SINGULAR = {
    "competitions": "competition",
    "seasons": "season",
    "matches": "match",
    "clubs": "club",
    "players": "player",
    "events": "event",
    "comments": "comment",
    "users": "user",
    "ads": "advertisement",
    "assignments": "assignment",
}


def _values(table: Table, image: dict[str, Any]) -> dict[str, Any]:
    times = {column.name for column in table.columns if isinstance(column.type, DateTime)}
    return {
        name: datetime.fromisoformat(value) if name in times and value is not None else value
        for name, value in image.items()
    }


def _conflict(refused: IntegrityError, table: Table) -> Exception:
    if getattr(refused.orig, "sqlstate", None) == "23503":
        return problem(404, "It refers to something that does not exist.")
    return problem(409, f"There is already such a {_SINGULAR[table.name]}.")


async def _settle(sql: AsyncConnection, rows: Sequence[RowChange]) -> None:
    """Award the points of matches whose result has changed, or take them back."""
    for match_id in {row.id for row in rows if row.table == "matches" and row.columns() & _RESULT}:
        match = (await sql.execute(select(matches).where(matches.c.id == match_id))).one_or_none()
        if match is None:
            continue
        if match.status == "finished":
            await sql.execute(points_update([match_id]))
        else:
            scored = predictions.c.match_id == match_id, predictions.c.points.is_not(None)
            await sql.execute(update(predictions).where(*scored).values(points=None))


async def _count_revisions(sql: AsyncConnection, rows: Sequence[RowChange]) -> None:
    """Count the revisions of matches: clients request the parts whose revision has changed."""
    for row in rows:
        if row.table == "matches":
            await sql.execute(count_live_revisions([row.id]))
            if row.columns() & _META:
                await _count(sql, "meta_revision", matches.c.id == row.id)
        elif row.table == "events":
            await sql.execute(count_live_revisions([row.value("match_id")]))
        elif row.table == "comments":
            await _count(sql, "comments_revision", matches.c.id == row.value("match_id"))
        elif row.table == "clubs" and "name" in row.columns():
            await _count(sql, "meta_revision", or_(matches.c.home_id == row.id, matches.c.away_id == row.id))


def count_live_revisions(match_ids: Sequence[int]) -> Update:
    """Count a change of score, events or votes; of a finished match they are on its fixed page, too."""
    is_final = case((matches.c.status == "finished", 1), else_=0)
    return (
        update(matches)
        .where(matches.c.id.in_(match_ids))
        .values(live_revision=matches.c.live_revision + 1, meta_revision=matches.c.meta_revision + is_final)
    )


async def _count(sql: AsyncConnection, name: str, of: ColumnElement[bool]) -> None:
    await sql.execute(update(matches).where(of).values({name: matches.c[name] + 1}))
