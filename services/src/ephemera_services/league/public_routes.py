"""The cached pages, public and private: ETag, 304, HEAD, 202, and stale pages with Cache-Status."""

from __future__ import annotations

from fastapi import APIRouter

from ephemera.web.fastapi import add_resource
from ephemera_services.league.access import SECURED, signed_in_user
from ephemera_services.league.keys import (
    ACHIEVEMENTS,
    ACTIVE,
    ADS,
    BOARD,
    BRACKET,
    CLUB,
    COMMENTS,
    LIVE,
    LIVE_MATCHES,
    META,
    MINE,
    RESULTS,
    SCHEDULE,
    SEASON_BOARD,
    SEASON_BRACKET,
    SEASON_RESULTS,
    SEASON_SCHEDULE,
    SEASON_STATS,
    SEASON_TABLE,
    SEASONS,
    STATS,
    TABLE,
    VERSIONS,
)
from ephemera_services.league.middleware import store_of
from ephemera_services.runtime import problems

router = APIRouter()
shared = APIRouter()
"""Pages whose paths users also post to; they come after the users' routes, which list all methods."""

_PAGES = {"/api/seasons": SEASONS, "/api/ads": ADS}
_BY_SEASON = {
    "/api/league/table": (TABLE, SEASON_TABLE),
    "/api/league/schedule": (SCHEDULE, SEASON_SCHEDULE),
    "/api/league/results": (RESULTS, SEASON_RESULTS),
    "/api/league/stats": (STATS, SEASON_STATS),
    "/api/league/bracket": (BRACKET, SEASON_BRACKET),
    "/api/leaderboards/{board}": (BOARD, SEASON_BOARD),
}
"""The pages of the current season, and with `season=` those of another, or of `all`."""
_WITH_IDS = {
    "/api/clubs/{id}/matches": CLUB,
    "/api/users/{user_id}/achievements": ACHIEVEMENTS,
}
_LIVE = {
    "/api/matches/live": LIVE_MATCHES,
    "/api/matches/{match_id}/versions": VERSIONS,
    "/api/matches/{match_id}/live": LIVE,
    "/api/matches/{match_id}/meta": META,
}
"""The pages that are polled, with a lower limit per address."""

for path, resource in _PAGES.items():
    add_resource(router, path, resource, store=store_of, tags=["pages"])
for path, (resource, of_season) in _BY_SEASON.items():
    add_resource(
        router,
        path,
        resource,
        store=store_of,
        variants={"season": of_season},
        tags=["pages"],
        responses=problems(429),
    )
for path, resource in _WITH_IDS.items():
    add_resource(router, path, resource, store=store_of, tags=["pages"], responses=problems(429))
for path, resource in _LIVE.items():
    add_resource(router, path, resource, store=store_of, tags=["live"], responses=problems(429))
add_resource(
    shared,
    "/api/matches/{match_id}/comments",
    COMMENTS,
    store=store_of,
    tags=["live"],
    responses=problems(429),
)
add_resource(
    router,
    "/api/predictions",
    ACTIVE,
    store=store_of,
    query={"range": "6d"},
    tags=["pages"],
    responses=problems(429),
)
add_resource(
    router,
    "/api/me/predictions",
    MINE,
    store=store_of,
    user=signed_in_user,
    openapi_extra=SECURED,
    tags=["me"],
)
