"""Live control of a match by administrators and helpers, several of whom may work at the same time.

*Repeated requests.* Each action has an id of its client. A repeated one, as after a lost answer on a bad
network, records nothing twice: it publishes the pages again, and answers like the first.

*The same event twice.* A client sends the last change that it has seen. If since then someone else recorded
an action of the same kind for the same side, it is refused with 409: most likely both saw the same goal. A
client shows what was recorded, and sends the action again with the new revision if it was another one.

*Different events* are all recorded: goals are added to the score, not set, and the match's row is locked.

Phases follow each other: before, first half, half-time, second half, ended. What happens in the stoppage time
of a half is recorded in its last minute, 45 or 90. A match starts from 30 minutes
before its kick-off until three hours after it; outside of that an override with a reason is required.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera_services.league.administration.editor import Editor
from ephemera_services.league.administration.edits import Edit, lock, recorded, repeated
from ephemera_services.league.administration.forms import Action
from ephemera_services.league.administration_tables import assignments, changes
from ephemera_services.league.keys import Session
from ephemera_services.league.loaders import HALF, clock_start
from ephemera_services.league.tables import events, matches
from ephemera_services.runtime import problem

EARLIEST_START, LATEST_START = timedelta(minutes=30), timedelta(hours=3)
"""Before and after the kick-off."""
HELPERS_DAY = timedelta(hours=12)
"""How far from its kick-off a helper controls a match."""
_HALF = HALF // timedelta(minutes=1)
_STEPS = {
    "half-time": ("first half", "half-time"),
    "second half": ("half-time", "second half"),
    "end": ("second half", "ended"),
}
UNKNOWN_PLAYER = "unknown"


class LiveControl:
    """Live control of matches."""

    def __init__(self, engine: AsyncEngine, editor: Editor) -> None:
        self._engine = engine
        self._editor = editor

    async def act(self, match_id: int, action: Action, by: Session) -> None:
        """Record an action, once."""
        label = f"{action.kind} {action.side}" if action.side else action.kind
        async with self._engine.begin() as sql:
            match = await lock(sql, matches, match_id)
            await require_control(sql, match, by)
            known = await repeated(sql, action.id, by, match_id)
            if known is None:
                await _refuse_twice(sql, match_id, label, action.seen)
                note = action.note if action.override else None
                edit = Edit(sql, by, label, match_id=match_id, request_id=action.id, note=note)
                await _apply(edit, match, action)
                await edit.save()
                rows = edit.rows
            else:
                rows = recorded(known)
        await self._editor.publish(rows, match_id)


async def require_control(sql: AsyncConnection, match: Row[Any], by: Session) -> None:
    """403 unless this user controls a match: see `controlled_by`."""
    if by.role != "admin":
        allowed = await sql.execute(select(matches.c.id).where(matches.c.id == match.id, controlled_by(by)))
        if allowed.first() is None:
            raise problem(403, "You are not a helper of this match today.")


def controlled_by(by: Session) -> Any:
    """The condition of matches that a helper controls: of today, and assigned to them or to no one."""
    now = datetime.now(UTC)
    helpers = select(assignments.c.id).where(assignments.c.match_id == matches.c.id)
    mine = exists(helpers.where(assignments.c.user_id == int(by.user_id)))
    today = matches.c.kickoff.between(now - HELPERS_DAY, now + HELPERS_DAY)
    return today & or_(mine, ~exists(helpers))


def clock(match: Row[Any], now: datetime | None = None) -> int:
    """The minute of a match, by the time since its phase began."""
    start = clock_start(match)
    if start is None:
        return int(match.minute)
    passed = ((now or datetime.now(UTC)) - start) // timedelta(minutes=1) + 1
    begun = 0 if match.phase == "first half" else _HALF
    return int(min(max(passed, begun + 1), begun + 2 * _HALF))


def refuse_far_start(match: Row[Any], *, override: bool, note: str | None) -> None:
    """409 for a start that is not near the kick-off, unless it is overridden with a reason."""
    early = datetime.now(UTC) - match.kickoff
    if -EARLIEST_START <= early <= LATEST_START:
        return
    if not override:
        raise problem(
            409, "The kick-off is not near: from 30 minutes before it until 3 hours after it.", override=True
        )
    if not note:
        raise problem(422, "An override needs a reason.")


async def _refuse_twice(sql: AsyncConnection, match_id: int, label: str, seen: int) -> None:
    undone = changes.alias("undone")
    since = (
        select(changes.c.id, changes.c.by_name, changes.c.at)
        .where(changes.c.match_id == match_id, changes.c.action == label, changes.c.id > seen)
        .where(~exists().where(undone.c.undoes == changes.c.id))
        .order_by(changes.c.id.desc())
    )
    found = (await sql.execute(since)).first()
    if found is not None:
        detail = f"{found.by_name} has just recorded the same: {label}."
        raise problem(409, detail, recorded=found.id)


async def _apply(edit: Edit, match: Row[Any], action: Action) -> None:
    if action.kind == "start":
        await _start(edit, match, action)
    elif action.kind in _STEPS:
        await _step(edit, match, action.kind)
    else:
        await _record_event(edit, match, action)


async def _start(edit: Edit, match: Row[Any], action: Action) -> None:
    if match.status != "scheduled":
        raise problem(409, f"It cannot start: it is {match.status}.")
    refuse_far_start(match, override=action.override, note=action.note)
    score = {"home_goals": 0, "away_goals": 0}  # recorded: a start with goals is not undone
    now = datetime.now(UTC)
    await edit.update(matches, match.id, status="live", phase="first half", phase_since=now, **score)
    await _set_minute(edit, match.id, 1)


async def _step(edit: Edit, match: Row[Any], kind: str) -> None:
    required, following = _STEPS[kind]
    _require_live(match)
    if match.phase != required:
        raise problem(409, f"This follows the {required}; the phase is: {match.phase}.")
    await edit.update(matches, match.id, phase=following, phase_since=datetime.now(UTC))
    await _set_minute(edit, match.id, {"half-time": _HALF, "second half": _HALF + 1, "end": 2 * _HALF}[kind])


async def _record_event(edit: Edit, match: Row[Any], action: Action) -> None:
    _require_live(match)
    minute = clock(match) if action.minute is None else action.minute
    minute = min(minute, _HALF if match.phase in ("first half", "half-time") else 2 * _HALF)
    player = action.player or UNKNOWN_PLAYER
    event = {"match_id": match.id, "minute": minute, "kind": action.kind, "side": action.side}
    await edit.insert(events, **event, player=player)
    if action.kind == "goal":
        await edit.add(matches, match.id, **{f"{action.side}_goals": 1})
    if match.minute_at is None:
        await _set_minute(edit, match.id, max(minute, match.minute))


def _require_live(match: Row[Any]) -> None:
    if match.status != "live":
        raise problem(409, f"The match is not live: it is {match.status}.")


async def _set_minute(edit: Edit, match_id: int, minute: int) -> None:
    """Set the shown minute; it is not part of the history: every action moves it on."""
    await edit.sql.execute(
        update(matches).where(matches.c.id == match_id).values(minute=minute, minute_at=None)
    )
