"""The referee of the demo: plays matches of about three minutes, one after the other, season after season.

At any time one match is live, others can be predicted, and a result is never far away. The matches are those
of the schedule, brought forward. After the last one of the league the first four play the cup; meanwhile the
next season is planned, and it starts once the cup is won.

Everything goes through live control and the editor, so the history shows it and people can play along. One
process plays at a time, and only a league of the demo's own clubs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import EphemeraError
from ephemera.web import Problem
from ephemera_services.league.administration.edits import SERVICE, RowChange
from ephemera_services.league.administration.forms import Action
from ephemera_services.league.administration.live_control import clock
from ephemera_services.league.administration_tables import players
from ephemera_services.league.demo_data import CLUBS, fixture, rounds
from ephemera_services.league.keys import DEMO_LOCK
from ephemera_services.league.loaders import league_table
from ephemera_services.league.seasons import current_season
from ephemera_services.league.tables import clubs, matches, seasons

if TYPE_CHECKING:
    from ephemera_services.league.service import League

logger = logging.getLogger(__name__)

EVERY, MINUTES = 5.0, (2, 4)
"""Seconds from one act to the next, and the minutes of play in each."""
_GOAL_CHANCE, _CARD_CHANCE = 0.1, 0.08
"""For each act: about three goals and two cards in a match."""
_PLANNED, _GAP = 3, timedelta(minutes=3)
"""Matches that are brought forward, and the time from one kick-off to the next."""
_SOON, _LATE = timedelta(minutes=25), timedelta(hours=2)
"""When a match can start: before and after its kick-off."""
_UNSEEN = 999_999_999_999_999
"""As `seen` of an action: the referee sees everything."""
_OVER = ("finished", "cancelled", "postponed")


class Referee:
    """Plays the matches of the demo."""

    def __init__(self, league: League) -> None:
        self._league = league
        self._engine: AsyncEngine = league.engine
        self._lock = league.store[DEMO_LOCK]

    async def run(self) -> None:
        """Play, in one of all processes, until cancelled."""
        while True:
            try:
                async with self._lock.hold():
                    while await self._is_demo():
                        await self.act()
                        await asyncio.sleep(EVERY)
            except (EphemeraError, SQLAlchemyError, OSError, Problem) as failure:
                # someone else may have controlled the same match at this moment
                logger.info("the demo's referee tries again", extra={"failure": type(failure).__name__})
            await asyncio.sleep(EVERY)

    async def act(self) -> None:
        """Act once: two to four minutes of play."""
        await self._prepare_cup()
        planned = await self._matches(matches.c.status == "scheduled")
        if len(planned) < _PLANNED:
            await self._plan_season()
            planned = await self._matches(matches.c.status == "scheduled")
        await self._bring_forward(planned[:_PLANNED])
        live = await self._matches(matches.c.status == "live")
        if planned and all(match.phase == "ended" for match in live):  # before the last one is final
            await self._control(planned[0], "start")
        for match in live:
            await self._play(match)

    async def _is_demo(self) -> bool:
        """Whether the clubs are the demo's, of which someone may have renamed a few in the panel."""
        known = select(func.count()).where(clubs.c.name.in_(CLUBS))
        async with self._engine.connect() as sql:
            return int((await sql.execute(known)).scalar_one()) > len(CLUBS) // 2

    async def _matches(self, *conditions: Any) -> Sequence[Row[Any]]:
        query = select(matches).where(*conditions).order_by(matches.c.kickoff, matches.c.id)
        async with self._engine.connect() as sql:
            return (await sql.execute(query)).all()

    async def _bring_forward(self, planned: Sequence[Row[Any]]) -> None:
        """Have matches begin one after the other, unless they do so soon."""
        now = last = datetime.now(UTC)
        for match in planned:
            kickoff = match.kickoff
            if not now - _LATE < kickoff < now + _SOON:
                kickoff = last + _GAP
                async with self._league.editor.edit(SERVICE, "brought forward", match_id=match.id) as edit:
                    await edit.update(matches, match.id, kickoff=kickoff)
            last = max(last, kickoff)

    async def _play(self, match: Row[Any]) -> None:
        minute, drawn = clock(match) + random.randint(*MINUTES), match.home_goals == match.away_goals
        if match.phase == "ended":
            await self._league.matches.finalize(match.id, match.home_goals, match.away_goals)
            self._league.after_result()
        elif match.phase == "half-time":
            await self._control(match, "second half")
        elif match.phase == "first half" and minute > 45:
            await self._control(match, "half-time")
        elif match.phase == "second half" and minute > 90 and not (drawn and match.stage != "league"):
            await self._control(match, "end")
        else:
            await self._show_minute(match, min(minute, 90))
            decides = minute > 90  # a cup match that is drawn
            if decides or random.random() < _GOAL_CHANCE:
                await self._control(match, "goal", min(minute, 90))
            elif random.random() < _CARD_CHANCE:
                await self._control(match, "card", minute)

    async def _control(
        self,
        match: Row[Any],
        kind: Literal["start", "goal", "card", "half-time", "second half", "end"],
        minute: int | None = None,
    ) -> None:
        event: dict[str, Any] = {}
        if minute is not None:
            side = random.choice(("home", "away"))
            event = {"side": side, "player": await self._player(match, side), "minute": minute}
        action = Action(id=uuid4(), seen=_UNSEEN, kind=kind, **event)
        await self._league.live_control.act(match.id, action, SERVICE)

    async def _player(self, match: Row[Any], side: str) -> str | None:
        """Someone of the side's squad, which people may have changed in the panel."""
        squad = select(players.c.name).where(players.c.club_id == getattr(match, f"{side}_id"))
        async with self._engine.connect() as sql:
            names = (await sql.execute(squad.order_by(players.c.id))).scalars().all()
        return random.choice(names) if names else None

    async def _show_minute(self, match: Row[Any], minute: int) -> None:
        """Set the clock alone: a goal that a helper records at the same moment stays."""
        async with self._league.editor.edit(SERVICE, "minute", match_id=match.id) as edit:
            setting = update(matches).where(matches.c.id == match.id)
            await edit.sql.execute(setting.values(minute=minute, minute_at=func.now()))
            edit.rows = [RowChange("matches", match.id, {}, {}, {"minute": 0})]

    async def _prepare_cup(self) -> None:
        """Plan the next round of the current season's cup once it is known who plays it."""
        played = await self._matches(matches.c.season_id == current_season())
        if not played or any(match.status not in _OVER for match in played):
            return
        season_id = played[0].season_id
        semis = [match for match in played if match.stage == "semi-final"]
        if not semis:
            first = [row["club_id"] for row in await league_table(self._engine)][:4]
            await self._add(season_id, "semi-final", 1, [(first[0], first[3]), (first[1], first[2])])
        elif not any(match.stage == "final" for match in played):
            await self._add(season_id, "final", 2, [tuple(map(_winner, semis[:2]))])
        else:
            await self._start_next_season(season_id)

    async def _add(self, season_id: int, stage: str, number: int, ties: Sequence[tuple[int, ...]]) -> None:
        soon = datetime.now(UTC) + timedelta(minutes=1)  # before the matches of the next season
        async with self._league.editor.edit(SERVICE, f"{stage} of the cup") as edit:
            for home, away in ties:
                row = fixture(stage, number, home, away, soon)
                await edit.insert(matches, season_id=season_id, **row)

    async def _plan_season(self) -> None:
        """Plan the season after the current one, unless there is one."""
        async with self._league.editor.edit(SERVICE, "plan of the next season") as edit:
            last = (await edit.sql.execute(select(seasons).order_by(seasons.c.id.desc()).limit(1))).one()
            if last.status == "upcoming":
                return
            name = str(int(last.name) + 1) if last.name.isdigit() else f"{last.name} II"
            season_id = await edit.insert(seasons, competition_id=last.competition_id, name=name)
            of_demo = select(clubs.c.id).order_by(clubs.c.id).limit(len(CLUBS))
            ids = list((await edit.sql.execute(of_demo)).scalars())
            random.shuffle(ids)
            ahead = rounds(ids, datetime.now(UTC) + timedelta(days=90), random.Random(), played=0)
            rows = [{**row, "season_id": season_id} for row in ahead]
            first, rest = rows[: len(ids) // 2], rows[len(ids) // 2 :]
            for row in first:  # all shared pages follow from one round; no one has asked for the others' own
                await edit.insert(matches, **row)
            await edit.sql.execute(insert(matches), rest)

    async def _start_next_season(self, over: int) -> None:
        async with self._league.editor.edit(SERVICE, "start of a season") as edit:
            upcoming = select(seasons.c.id).where(seasons.c.status == "upcoming").order_by(seasons.c.id)
            following = (await edit.sql.execute(upcoming)).scalars().first()
            if following is not None:
                await edit.update(seasons, over, status="past")
                await edit.update(seasons, following, status="current")


def _winner(match: Row[Any]) -> int:
    return int(match.home_id if match.home_goals >= match.away_goals else match.away_id)
