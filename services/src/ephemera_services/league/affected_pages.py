"""The pages that show a match, by what has changed in it.

Pages for everyone are replaced together. The pages of users who predicted the match, and the lists of open
predictions, are removed, so that the next poll loads them: there may be thousands, of which few are polled
soon. Both kinds are new at the next poll.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, union
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.http_cache import BoundHttpCache, PageRef, Resource
from ephemera_services.league.keys import (
    ACHIEVEMENTS,
    ACTIVE,
    ADMIN_STATS,
    BRACKET,
    CLUB,
    LIVE,
    LIVE_MATCHES,
    META,
    MINE,
    RESULTS,
    SCHEDULE,
    SEASON_BRACKET,
    SEASON_RESULTS,
    SEASON_SCHEDULE,
    SEASON_STATS,
    SEASON_TABLE,
    STATS,
    TABLE,
    VERSIONS,
)
from ephemera_services.league.loaders import RANGES
from ephemera_services.league.seasons import ALL
from ephemera_services.league.tables import legacy_predictions, predictions

_CHUNK = 500  # pages that are removed in one step
_TABLE, _SCHEDULE = (TABLE, SEASON_TABLE), (SCHEDULE, SEASON_SCHEDULE)
_RESULTS, _STATS, _BRACKET = (RESULTS, SEASON_RESULTS), (STATS, SEASON_STATS), (BRACKET, SEASON_BRACKET)
_PREDICTED = (predictions, legacy_predictions)
LEAGUE_PAGES = (_TABLE, _SCHEDULE, _RESULTS, _STATS, _BRACKET)
"""Each page of the current season, and the same of any season."""


def season_pages(
    season_id: int, pages: tuple[tuple[Resource[Any], Resource[Any]], ...] = LEAGUE_PAGES
) -> list[PageRef]:
    """Pages of the current season, of a season by its id, and of all seasons."""
    return [
        page
        for current, by_season in pages
        for page in (current.at(), *(by_season.at(season=each) for each in (str(season_id), ALL)))
    ]


def live_pages(match_id: int) -> list[PageRef]:
    """The pages that show minute, events and votes of a match."""
    of_match = {"match_id": str(match_id)}
    return [LIVE.at(**of_match), VERSIONS.at(**of_match), LIVE_MATCHES.at()]


def event_pages(match: Any) -> list[PageRef]:
    """The pages that show goals and cards of a match."""
    return [*live_pages(match.id), *season_pages(match.season_id, (_STATS,)), ADMIN_STATS.at()]


def score_pages(match: Any) -> list[PageRef]:
    """The pages that show the score of a match that is not finished."""
    seasonal = season_pages(match.season_id, (_SCHEDULE, _BRACKET))
    return [*live_pages(match.id), *seasonal, *_club_pages(match)]


def result_pages(match: Any) -> list[PageRef]:
    """The pages that show the result of a match: its time, its place and its clubs too."""
    others = [META.at(match_id=str(match.id)), ADMIN_STATS.at(), *_club_pages(match)]
    return [*season_pages(match.season_id), *live_pages(match.id), *others]


async def remove_predictions(site: BoundHttpCache[Any], engine: AsyncEngine, match_id: int) -> list[PageRef]:
    """Remove the open predictions of every range, and the pages of the users who predicted a match.

    After the commit: a prediction that is placed later removes its user's pages itself.
    """
    async with engine.connect() as sql:
        queries = [select(each.c.user_id).where(each.c.match_id == match_id) for each in _PREDICTED]
        users = [str(each) for each in (await sql.execute(union(*queries))).scalars()]
    pages = [ACTIVE.at(range=each) for each in RANGES]
    pages += [page.at(user_id=user) for user in users for page in (MINE, ACHIEVEMENTS)]
    for start in range(0, len(pages), _CHUNK):
        await site.delete(*pages[start : start + _CHUNK])
    return pages


def _club_pages(match: Any) -> list[PageRef]:
    return [CLUB.at(id=str(club)) for club in (match.home_id, match.away_id)]
