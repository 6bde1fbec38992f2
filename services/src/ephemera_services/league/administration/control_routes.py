"""Live control, the preview of a finalization, and undo: for administrators and helpers of matches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.league.access import Admin, Service, Staff
from ephemera_services.league.administration import views
from ephemera_services.league.administration.edits import RowChange, lock, recorded
from ephemera_services.league.administration.forms import (
    Action,
    ChangeList,
    Control,
    Id,
    Instant,
    MatchList,
    Preview,
    Status,
    Undone,
)
from ephemera_services.league.administration.live_control import HELPERS_DAY, require_control
from ephemera_services.league.administration.previews import preview
from ephemera_services.league.administration_tables import changes
from ephemera_services.league.forms import Goals
from ephemera_services.league.keys import Session
from ephemera_services.league.tables import matches
from ephemera_services.runtime import problem, problems

router = APIRouter(prefix="/api/admin", tags=["live control"], responses=problems(403, 429))

_LIVE_COLUMNS = {"status", "phase", "phase_since", "home_goals", "away_goals"}
"""What live control changes of a match."""
_UNDECIDED = ("scheduled", "live")
"""The statuses between which live control moves a match."""


@router.get("/matches")
async def match_list(
    caller: Staff,
    service: Service,
    season_id: Id | None = None,
    status: Status | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    after: Id | None = None,
) -> MatchList:
    """The first hundred matches by kick-off, after the one with an id; of a helper only theirs.

    Without times and season those of today: the live ones, then those nearest to now.
    """
    now = datetime.now(UTC)
    today = (season_id, since, until) == (None, None, None)
    conditions: list[ColumnElement[bool]] = []
    if season_id is not None:
        conditions.append(matches.c.season_id == season_id)
    else:
        until = now + HELPERS_DAY if today else until
        since = since or now - HELPERS_DAY
    if since is not None:
        conditions.append(matches.c.kickoff >= since)
    if until is not None:
        conditions.append(matches.c.kickoff <= until)
    if status is not None:
        conditions.append(matches.c.status == status)
    if after is not None:
        last = matches.alias()
        kickoff = select(last.c.kickoff).where(last.c.id == after).scalar_subquery()
        conditions.append(tuple_(matches.c.kickoff, matches.c.id) > tuple_(kickoff, after))
    async with service.engine.connect() as sql:
        lines = await views.match_lines(sql, caller, *conditions, nearest=today and after is None)
    return MatchList(matches=lines)


@router.get("/matches/{match_id}", responses=problems(404))
async def control(match_id: Id, caller: Staff, service: Service) -> Control:
    """Everything that live control shows of a match, with its history."""
    async with service.engine.begin() as sql:
        await require_control(sql, await lock(sql, matches, match_id), caller)
        return await views.control(sql, match_id)


@router.post("/matches/{match_id}/actions", responses=problems(404, 409))
async def act(match_id: Id, form: Action, caller: Staff, service: Service) -> Control:
    """Start a match, record a goal or a card, half-time, the second half, or the end.

    Idempotent by the `id` of the action. 409 if it does not fit the phase, or if someone else has recorded
    the same since the revision that is named as `seen`: repeat it with the new one if it was another event.
    """
    await service.live_control.act(match_id, form, caller)
    async with service.engine.connect() as sql:
        return await views.control(sql, match_id)


@router.get("/matches/{match_id}/finalization", responses=problems(404))
async def finalization(
    match_id: Id,
    caller: Staff,
    service: Service,
    home_goals: Annotated[Goals | None, Query(strict=False)] = None,
    away_goals: Annotated[Goals | None, Query(strict=False)] = None,
) -> Preview:
    """What finalizing this match would change: score, table, points, pages. Changes nothing."""
    if (home_goals is None) != (away_goals is None):
        raise problem(422, "Name both numbers of goals, or none.")
    score = None if home_goals is None or away_goals is None else (home_goals, away_goals)
    return await preview(service.engine, match_id, score, caller)


@router.get("/changes")
async def history(
    _: Admin, service: Service, match_id: Id | None = None, before: Id | None = None
) -> ChangeList:
    """The last hundred changes, the newest first: of everything or of a match, before a change's id."""
    conditions = []
    if match_id is not None:
        conditions.append(changes.c.match_id == match_id)
    if before is not None:
        conditions.append(changes.c.id < before)
    async with service.engine.connect() as sql:
        return ChangeList(changes=await views.change_list(sql, *conditions))


@router.post("/changes/{change_id}/undo", responses=problems(404, 409))
async def undo(change_id: Id, caller: Staff, service: Service) -> Undone:
    """Undo a change, or an undo. 409 if a later change builds upon it.

    A helper undoes what live control has recorded of a match that they control and that is not final.
    """

    async def authorize(sql: AsyncConnection, change: Any) -> None:
        if caller.role != "admin":
            await _require_authority(sql, change, caller)

    edit = await service.editor.undo(change_id, caller, authorize)
    service.after_result()
    return Undone(action=edit.action, match_id=edit.match_id)


async def _require_authority(sql: AsyncConnection, change: Any, by: Session) -> None:
    if change.match_id is None or not all(map(_is_of_live_control, recorded(change))):
        raise problem(403, "This is undone by administrators.")
    match = await lock(sql, matches, change.match_id)
    await require_control(sql, match, by)
    if match.status not in _UNDECIDED:
        raise problem(403, "A final result is undone by administrators.")


def _is_of_live_control(row: RowChange) -> bool:
    """Whether live control makes such changes: not the fixture itself, nor a result or its undo."""
    if row.table == "events":
        return True
    if row.table != "matches" or row.before is None or row.after is None:
        return False
    statuses = (image.get("status", "live") for image in (row.before, row.after))
    return row.columns() <= _LIVE_COLUMNS and all(status in _UNDECIDED for status in statuses)
