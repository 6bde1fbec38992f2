"""Match updates by administrators: scores, events, and the final result, whose pages change atomically.

A finalization is committed while no other process can store the affected pages (`changing`), and one at a
time, so the table and the results never disagree, in any process. It can be repeated: with the same result it
only invalidates the pages again, with another one it corrects the first.

A match starts from half an hour before its kick-off on, and is finalized after it; earlier, or while it is
postponed, only by an override, for a match that is brought forward or awarded.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Row, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.http_cache import PageRef
from ephemera_services.league.administration.editor import Editor
from ephemera_services.league.administration.edits import SERVICE, Edit, RowChange
from ephemera_services.league.administration.live_control import require_control
from ephemera_services.league.keys import Session
from ephemera_services.league.loaders import HALF
from ephemera_services.league.tables import events, matches
from ephemera_services.runtime import problem

FIRST_HALF, FIRST_PHASES = HALF // timedelta(minutes=1), ("first half", "half-time")
START_BEFORE = timedelta(minutes=30)
"""How long before its kick-off a match can be started."""


class Matches:
    """Match administration."""

    def __init__(self, engine: AsyncEngine, editor: Editor) -> None:
        self._engine = engine
        self._editor = editor

    async def set_score(
        self,
        match_id: int,
        minute: int,
        home_goals: int,
        away_goals: int,
        *,
        by: Session = SERVICE,
        override: bool = False,
    ) -> None:
        """Set the score of a match; the first score makes it live."""
        values = {"status": "live", "home_goals": home_goals, "away_goals": away_goals}
        async with self._editor.edit(by, "score", match_id=match_id) as edit:
            match = await _unfinished(edit.sql, match_id)
            if match.status == "scheduled" and match.starts_in > START_BEFORE:
                _refuse_early(override, "started", "from 30 minutes before its kick-off")
            phase = "second half" if minute > FIRST_HALF else "first half"
            if match.phase == "before" or (minute > FIRST_HALF and match.phase in FIRST_PHASES):
                values |= {"phase": phase, "phase_since": func.now()}
            await edit.update(matches, match_id, **values)
            if minute != match.minute:
                by_hand = update(matches).where(matches.c.id == match_id)
                await edit.sql.execute(by_hand.values(minute=minute, minute_at=func.now()))
            if minute != match.minute and not edit.rows[-1].columns():
                edit.rows = [RowChange("matches", match_id, {}, {}, {"minute": 0})]  # most updates of a match

    async def add_event(self, match_id: int, event: dict[str, Any], by: Session) -> None:
        """Record a goal or a card, without changing the score."""
        async with self._editor.edit(by, f"{event['kind']} {event['side']}", match_id=match_id) as edit:
            await _unfinished(edit.sql, match_id)
            await edit.insert(events, match_id=match_id, **event)

    async def finalize(
        self,
        match_id: int,
        home_goals: int,
        away_goals: int,
        *,
        by: Session = SERVICE,
        override: bool = False,
    ) -> list[PageRef]:
        """Finalize a result, and return the pages that changed."""
        rows = [RowChange("matches", match_id, {}, {"status": "finished"})]
        async with (
            self._editor.changing_results(rows, match_id) as pages,
            self._engine.begin() as sql,
        ):
            match = await _locked(sql, match_id)
            await _require_authority(sql, match, (home_goals, away_goals), by)
            if match.status == "postponed" and not override:
                raise problem(409, "The match is postponed: it is finalized only with override=true.")
            if match.status == "scheduled" and match.starts_in > timedelta(0):
                _refuse_early(override, "finalized", "after its kick-off")
            edit = Edit(sql, by, "final result", match_id=match_id)
            await set_result(edit, match_id, (home_goals, away_goals))
            await edit.save()
        return pages


async def set_result(edit: Edit, match_id: int, score: tuple[int, int]) -> None:
    """Set the final result of a match, as a part of an edit."""
    ended = func.coalesce(matches.c.ended_at, func.now())
    values = {"status": "finished", "phase": "ended", "home_goals": score[0], "away_goals": score[1]}
    await edit.update(matches, match_id, minute=90, ended_at=ended, **values)


async def _require_authority(
    sql: AsyncConnection, match: Row[Any], score: tuple[int, int], by: Session
) -> None:
    """Helpers finalize what they have recorded; the rest is for administrators."""
    if match.status == "cancelled":
        raise problem(409, "The match is cancelled.")
    if by.role == "admin":
        return
    await require_control(sql, match, by)
    if (match.status, match.phase) != ("live", "ended"):
        raise problem(409, "A helper finalizes a match that has ended and is not final yet.")
    if (match.home_goals, match.away_goals) != score:
        raise problem(409, f"The recorded score is {match.home_goals} : {match.away_goals}.")


async def _locked(sql: AsyncConnection, match_id: int) -> Row[Any]:
    """A match with the time until its kick-off, locked until the end of the transaction."""
    starts_in = (matches.c.kickoff - func.now()).label("starts_in")
    query = select(matches, starts_in).where(matches.c.id == match_id)
    match = (await sql.execute(query.with_for_update())).one_or_none()
    if match is None:
        raise problem(404, "There is no such match.")
    return match


async def _unfinished(sql: AsyncConnection, match_id: int) -> Row[Any]:
    match = await _locked(sql, match_id)
    if match.status == "finished":
        raise problem(409, "The match is finished: finalize it again to correct its result.")
    if match.status not in ("scheduled", "live"):
        raise problem(409, f"The match is {match.status}.")
    return match


def _refuse_early(override: bool, action: str, when: str) -> None:
    if not override:
        raise problem(409, f"The match can be {action} {when}; earlier only with override=true.")
