"""Clubs, players and fixtures: for administrators."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import and_, case, select

from ephemera_services.league.access import Admin, Service
from ephemera_services.league.administration import views
from ephemera_services.league.administration.edits import Edit, lock
from ephemera_services.league.administration.forms import (
    ClubList,
    ClubName,
    Created,
    FixtureChange,
    Helpers,
    Id,
    NewFixture,
    NewSeason,
    PlayerForm,
)
from ephemera_services.league.administration_tables import assignments, players
from ephemera_services.league.seasons import current_season
from ephemera_services.league.tables import clubs, competitions, events, matches, seasons, users
from ephemera_services.runtime import problem, problems

router = APIRouter(prefix="/api/admin", tags=["administration"], responses=problems(403, 429))

_CHANGEABLE = ("scheduled", "postponed")


@router.get("/clubs")
async def club_list(_: Admin, service: Service) -> ClubList:
    """The clubs with their squads."""
    async with service.engine.connect() as sql:
        return ClubList(clubs=await views.club_list(sql))


@router.post("/clubs", status_code=201, responses=problems(409))
async def add_club(form: ClubName, admin: Admin, service: Service) -> Created:
    """Create a club."""
    async with service.editor.edit(admin, "new club") as edit:
        return Created(id=await edit.insert(clubs, name=form.name))


@router.put("/clubs/{club_id}", status_code=204, responses=problems(404, 409))
async def rename_club(club_id: Id, form: ClubName, admin: Admin, service: Service) -> None:
    """Rename a club, on every page."""
    async with service.editor.edit(admin, "new name of a club") as edit:
        await edit.update(clubs, club_id, name=form.name)


@router.delete("/clubs/{club_id}", status_code=204, responses=problems(404, 409))
async def remove_club(club_id: Id, admin: Admin, service: Service) -> None:
    """Remove a club that has no matches, with its squad."""
    async with service.editor.edit(admin, "removal of a club") as edit:
        squad = select(players.c.id).where(players.c.club_id == club_id)
        for player_id in (await edit.sql.execute(squad)).scalars().all():
            await edit.delete(players, player_id)
        await edit.delete(clubs, club_id)


@router.post("/clubs/{club_id}/players", status_code=201, responses=problems(404, 409))
async def add_player(club_id: Id, form: PlayerForm, admin: Admin, service: Service) -> Created:
    """Add a player to a club."""
    async with service.editor.edit(admin, "new player") as edit:
        return Created(id=await edit.insert(players, club_id=club_id, **form.model_dump()))


@router.put("/players/{player_id}", status_code=204, responses=problems(404, 409))
async def change_player(player_id: Id, form: PlayerForm, admin: Admin, service: Service) -> None:
    """Change a player; a new name is also written to the goals and cards of the club's matches."""
    async with service.editor.edit(admin, "change of a player") as edit:
        before = await edit.update(players, player_id, **form.model_dump())
        if form.name != before.name:
            for event_id in (await edit.sql.execute(_events_of(before))).scalars().all():
                # the match is recorded too: its pages show the name
                await edit.update(events, event_id, player=form.name, match_id=events.c.match_id)


@router.delete("/players/{player_id}", status_code=204, responses=problems(404))
async def remove_player(player_id: Id, admin: Admin, service: Service) -> None:
    """Remove a player from their club; goals and cards keep the name."""
    async with service.editor.edit(admin, "removal of a player") as edit:
        await edit.delete(players, player_id)


@router.post("/seasons", status_code=201, responses=problems(404, 409))
async def add_season(form: NewSeason, admin: Admin, service: Service) -> Created:
    """Create a season, to plan its fixtures; it is shown by default once it starts."""
    known = select(competitions.c.id).where(competitions.c.name == form.competition)
    async with service.editor.edit(admin, "new season") as edit:
        competition_id = (await edit.sql.execute(known)).scalar_one_or_none()
        if competition_id is None:
            competition_id = await edit.insert(competitions, name=form.competition, position=1000)
        return Created(id=await edit.insert(seasons, competition_id=competition_id, name=form.name))


@router.post("/seasons/{season_id}/start", status_code=204, responses=problems(404, 409))
async def start_season(season_id: Id, admin: Admin, service: Service) -> None:
    """Start a season: it is the current one of its competition, and the one before is past. Idempotent."""
    async with service.editor.edit(admin, "start of a season") as edit:
        season = await lock(edit.sql, seasons, season_id)
        if season.status == "past":
            raise problem(409, "The season is over.")
        others = select(seasons.c.id).where(
            seasons.c.competition_id == season.competition_id,
            seasons.c.status == "current",
            seasons.c.id != season_id,
        )
        for other in (await edit.sql.execute(others)).scalars().all():
            await edit.update(seasons, other, status="past")
        await edit.update(seasons, season_id, status="current")


@router.post("/matches", status_code=201, responses=problems(404, 409))
async def add_fixture(form: NewFixture, admin: Admin, service: Service) -> Created:
    """Create a fixture."""
    values = form.model_dump()
    async with service.editor.edit(admin, "new fixture") as edit:
        if form.season_id is None:
            values["season_id"] = (await edit.sql.execute(select(current_season()))).scalar_one()
        if values["season_id"] is None:
            raise problem(409, "There is no current season: name one.")
        edit.match_id = await edit.insert(matches, **values)
        return Created(id=edit.match_id)


@router.put("/matches/{match_id}/fixture", status_code=204, responses=problems(404, 409))
async def move_fixture(match_id: Id, form: FixtureChange, admin: Admin, service: Service) -> None:
    """Move a fixture to another time or venue; a postponed one is scheduled again by a kick-off."""
    values: dict[str, Any] = form.model_dump(exclude_none=True)
    if form.kickoff is not None:
        values["status"] = "scheduled"
    async with service.editor.edit(admin, "move of a fixture", match_id=match_id) as edit:
        await _require_unplayed(edit, match_id)
        await edit.update(matches, match_id, **values)


@router.post("/matches/{match_id}/postpone", status_code=204, responses=problems(404, 409))
async def postpone(match_id: Id, admin: Admin, service: Service) -> None:
    """Postpone a fixture until it is moved to a new kick-off. Idempotent."""
    async with service.editor.edit(admin, "postponed", match_id=match_id) as edit:
        await _require_unplayed(edit, match_id)
        await edit.update(matches, match_id, status="postponed")


@router.post("/matches/{match_id}/cancel", status_code=204, responses=problems(404, 409))
async def cancel(match_id: Id, admin: Admin, service: Service) -> None:
    """Cancel a match that is not final; undo it to have it back. Idempotent."""
    async with service.editor.edit(admin, "cancelled", match_id=match_id) as edit:
        if (await lock(edit.sql, matches, match_id)).status == "finished":
            raise problem(409, "The match is finished.")
        await edit.update(matches, match_id, status="cancelled")


@router.put("/matches/{match_id}/helpers", status_code=204, responses=problems(404, 409))
async def assign(match_id: Id, form: Helpers, admin: Admin, service: Service) -> None:
    """Assign helpers to a match: no one else controls it but administrators. None: every helper may."""
    async with service.editor.edit(admin, "helpers", match_id=match_id) as edit:
        await lock(edit.sql, matches, match_id)
        wanted = set(form.user_ids)
        roles = await edit.sql.execute(
            select(users.c.id).where(users.c.id.in_(wanted), users.c.role != "user")
        )
        if wanted - set(roles.scalars()):
            raise problem(409, "Only helpers and administrators can be assigned to a match.")
        current = await edit.sql.execute(select(assignments).where(assignments.c.match_id == match_id))
        for row in current.all():
            if row.user_id not in wanted:
                await edit.delete(assignments, row.id)
            wanted.discard(row.user_id)
        for user_id in sorted(wanted):
            await edit.insert(assignments, match_id=match_id, user_id=user_id)


async def _require_unplayed(edit: Edit, match_id: int) -> None:
    match = await lock(edit.sql, matches, match_id)
    if match.status not in _CHANGEABLE:
        raise problem(409, f"The match is {match.status}.")


def _events_of(player: Any) -> Any:
    """The goals and cards that name a player in matches of their club."""
    club = case((events.c.side == "home", matches.c.home_id), else_=matches.c.away_id)
    return (
        select(events.c.id)
        .join(matches, matches.c.id == events.c.match_id)
        .where(and_(events.c.player == player.name, club == player.club_id))
        .order_by(events.c.id)
    )
