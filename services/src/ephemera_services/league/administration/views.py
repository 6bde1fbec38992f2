"""What the panel shows: lists of matches, clubs, users, comments and changes, straight from SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, Select, desc, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.league.administration.forms import (
    Change,
    Club,
    Control,
    ListedComment,
    MatchEvent,
    MatchLine,
    Player,
    Team,
    User,
)
from ephemera_services.league.administration.live_control import (
    EARLIEST_START,
    LATEST_START,
    clock,
    controlled_by,
)
from ephemera_services.league.administration_tables import assignments, changes, players
from ephemera_services.league.keys import Session
from ephemera_services.league.tables import clubs, comments, events, matches, predictions, users
from ephemera_services.runtime import problem

PAGE = 100
"""Rows of a list."""
_HISTORY = 30  # changes of a match that live control shows
home, away = clubs.alias("home"), clubs.alias("away")


async def match_lines(
    sql: AsyncConnection, by: Session, *conditions: Any, nearest: bool = False
) -> list[MatchLine]:
    """Matches by kick-off, or the live and then the nearest ones; for a helper only those they control."""
    allowed = conditions if by.role == "admin" else (*conditions, controlled_by(by))
    away_from_now = func.abs(func.extract("epoch", matches.c.kickoff - func.now()))
    first = (matches.c.status != "live", away_from_now) if nearest else (matches.c.kickoff,)
    query = _matches().where(*allowed).order_by(*first, matches.c.id).limit(PAGE)
    return [_line(row) for row in await sql.execute(query)]


async def control(sql: AsyncConnection, match_id: int) -> Control:
    """Everything that live control shows of a match."""
    row = (await sql.execute(_matches().where(matches.c.id == match_id))).one_or_none()
    if row is None:
        raise problem(404, "There is no such match.")
    shown = select(events).where(events.c.match_id == match_id).order_by(events.c.minute, events.c.id)
    history = await change_list(sql, changes.c.match_id == match_id, limit=_HISTORY)
    return Control(
        match=_line(row),
        teams={
            "home": await _team(sql, row.home_id, row.home),
            "away": await _team(sql, row.away_id, row.away),
        },
        events=[MatchEvent.model_validate(each, from_attributes=True) for each in await sql.execute(shown)],
        changes=history,
        revision=max((each.id for each in history), default=0),
        near=-EARLIEST_START <= datetime.now(UTC) - row.kickoff <= LATEST_START,
    )


async def change_list(sql: AsyncConnection, *conditions: Any, limit: int = PAGE) -> list[Change]:
    """Changes, the newest first."""
    undone = changes.alias("undone")
    query = (
        select(changes, undone.c.id.label("undone_by"))
        .outerjoin(undone, undone.c.undoes == changes.c.id)
        .where(*conditions)
        .order_by(desc(changes.c.id))
        .limit(limit)
    )
    return [_change(row) for row in await sql.execute(query)]


async def club_list(sql: AsyncConnection) -> list[Club]:
    """All clubs with their squads."""
    squads: dict[int, list[Player]] = {}
    for row in await sql.execute(select(players).order_by(players.c.number, players.c.name)):
        squads.setdefault(row.club_id, []).append(Player(id=row.id, name=row.name, number=row.number))
    rows = await sql.execute(select(clubs).order_by(clubs.c.name))
    return [Club(id=row.id, name=row.name, players=squads.get(row.id, [])) for row in rows]


async def comment_list(sql: AsyncConnection, *conditions: Any) -> list[ListedComment]:
    """Comments, the newest first."""
    query = (
        select(comments, users.c.name, home.c.name.label("home"), away.c.name.label("away"))
        .join(users, users.c.id == comments.c.user_id)
        .join(matches, matches.c.id == comments.c.match_id)
        .join(home, matches.c.home_id == home.c.id)
        .join(away, matches.c.away_id == away.c.id)
        .where(*conditions)
        .order_by(desc(comments.c.id))
        .limit(PAGE)
    )
    return [
        ListedComment(
            id=row.id,
            match_id=row.match_id,
            match=f"{row.home} – {row.away}",  # noqa: RUF001 - the dash between two clubs
            by=row.name,
            user_id=row.user_id,
            text=row.text,
            at=row.posted_at,
        )
        for row in await sql.execute(query)
    ]


async def user_list(sql: AsyncConnection, *conditions: Any) -> list[User]:
    """Users, the newest first."""
    counts = {
        table.name: select(func.count())
        .where(table.c.user_id == users.c.id)
        .scalar_subquery()
        .label(table.name)
        for table in (comments, predictions)
    }
    query = select(users, *counts.values()).where(*conditions).order_by(desc(users.c.id)).limit(PAGE)
    return [
        User(
            id=row.id,
            name=row.name,
            role=row.role,
            blocked=row.blocked_at is not None,
            created_at=row.created_at,
            comments=row.comments,
            predictions=row.predictions,
        )
        for row in await sql.execute(query)
    ]


def _matches() -> Select[Any]:
    names = func.array_agg(aggregate_order_by(users.c.name, users.c.name))
    helpers = (
        select(names)
        .select_from(assignments.join(users, users.c.id == assignments.c.user_id))
        .where(assignments.c.match_id == matches.c.id)
        .scalar_subquery()
    )
    return (
        select(matches, home.c.name.label("home"), away.c.name.label("away"), helpers.label("helpers"))
        .join(home, matches.c.home_id == home.c.id)
        .join(away, matches.c.away_id == away.c.id)
    )


def _line(row: Row[Any]) -> MatchLine:
    shown = dict(row._mapping) | {"minute": clock(row), "helpers": row.helpers or []}
    return MatchLine.model_validate(shown)


async def _team(sql: AsyncConnection, club_id: int, name: str) -> Team:
    squad = select(players.c.name).where(players.c.club_id == club_id)
    rows = await sql.execute(squad.order_by(players.c.number, players.c.name))
    return Team(club_id=club_id, name=name, players=list(rows.scalars()))


def _change(row: Row[Any]) -> Change:
    return Change(
        id=row.id,
        at=row.at,
        by=row.by_name,
        action=row.action,
        match_id=row.match_id,
        note=row.note,
        rows=row.rows,
        undone=row.undone_by is not None,
        undoable=row.undone_by is None and bool(row.rows),
    )
