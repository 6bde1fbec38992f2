"""Which season a page shows.

A page names a season by its id, or by `all` for all seasons; without one it shows
`CURRENT`, the current season of the first competition. A past season is settled: its pages are kept for long,
and only a correction changes them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, desc, select, text, true
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.http_cache import Settled
from ephemera_services.league.tables import competitions, matches, seasons

CURRENT, ALL = "current", "all"
_SEASON = re.compile(r"all|[1-9][0-9]{0,14}")


def is_season(season: str) -> bool:
    """Whether this names a season, or all of them."""
    return _SEASON.fullmatch(season) is not None


def current_season() -> ScalarSelect[Any]:
    """The id of the current season of the first competition."""
    return (
        select(seasons.c.id)
        .join(competitions, competitions.c.id == seasons.c.competition_id)
        .where(seasons.c.status == "current")
        .order_by(competitions.c.position, competitions.c.id)
        .limit(1)
        .scalar_subquery()
    )


def in_season(season: str) -> ColumnElement[bool]:
    """The condition that a match belongs to a season."""
    if season == ALL:
        return true()
    return matches.c.season_id == (current_season() if season == CURRENT else int(season))


def of_season(load: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Make a loader of any season from one of the current season: None if there is no such season."""

    async def load_of(engine: AsyncEngine, season: str, **fields: str) -> Any:
        status = await _status(engine, season)
        if status is None:
            return None
        content = await load(engine, *fields.values(), season)
        return Settled(content) if status == "past" and content is not None else content

    return load_of


async def all_seasons(engine: AsyncEngine) -> list[dict[str, Any]]:
    """The competitions, each with its seasons, latest first."""
    query = (
        select(competitions.c.id.label("competition_id"), competitions.c.name.label("competition"), seasons)
        .join(seasons, seasons.c.competition_id == competitions.c.id)
        .order_by(competitions.c.position, competitions.c.id, desc(seasons.c.id))
    )
    async with engine.connect() as sql:
        rows = (await sql.execute(query)).all()
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        each = found.setdefault(row.competition_id, {"competition": row.competition, "seasons": []})
        each["seasons"].append({"id": row.id, "name": row.name, "status": row.status})
    return list(found.values())


async def affected_seasons(engine: AsyncEngine) -> list[dict[str, str]]:
    """The seasons with matches of these days, and all seasons together, for prewarming."""
    around = matches.c.kickoff.between(text("now() - interval '1 day'"), text("now() + interval '1 day'"))
    query = select(matches.c.season_id).where(around).distinct().order_by(matches.c.season_id).limit(10)
    async with engine.connect() as sql:
        ids = [str(each) for each in (await sql.execute(query)).scalars()]
    return [{"season": season} for season in (*ids, ALL)]


async def _status(engine: AsyncEngine, season: str) -> str | None:
    """The status of a season; all of them together are never past."""
    if season == ALL:
        return "current"
    async with engine.connect() as sql:
        found = await sql.execute(select(seasons.c.status).where(seasons.c.id == int(season)))
        return found.scalar_one_or_none()
