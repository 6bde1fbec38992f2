"""Everything that the league keeps in Redis, with its lifetimes outside and inside match windows.

Losing any of it is safe, except votes that are not in SQL yet. A page carries its own version and ETag, so
the design's `__v:{key}` is the version of a cache entry, which never exists without its page, and its
`__lock:{key}` is `loading:{key}`, which has a token. `etag:md:{match_id}` is a small page: the revisions of a
match's parts, so that clients poll one page instead of three.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, fixed, sliding
from ephemera.patterns.cache import LocalCache
from ephemera.patterns.fanout import Fanout
from ephemera.patterns.http_cache import Freshness, HttpCache, Representation, Resource
from ephemera.patterns.locks import Locks
from ephemera.patterns.rate_limits import RateLimits, local_share, sliding_window
from ephemera.patterns.sessions import Sessions
from ephemera.patterns.windows import Windows
from ephemera.patterns.write_behind import DeferredRecords
from ephemera_services.league import loaders, seasons
from ephemera_services.league.administration_tables import changes
from ephemera_services.runtime import SignInAttempts, declare_tables

catalogue = Catalogue("league")


class Session(msgspec.Struct, frozen=True):
    """The signed-in user."""

    user_id: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,18}$")]  # anything else is not a session of ours
    name: str
    role: Literal["user", "helper", "admin"]


class Vote(msgspec.Struct, frozen=True):
    """A user's vote for the winner of a match."""

    user_id: int
    match_id: int
    choice: Literal["home", "draw", "away"]


class AdminEvent(msgspec.Struct, frozen=True):
    """An update for administrators: what happened, in which match."""

    kind: Literal["score", "event", "finalized", "votes", "ads", "changed"]
    match_id: int | None = None
    count: int = 1


class LegacyProgress(msgspec.Struct, frozen=True):
    """How far the migration of old predictions is."""

    copied: int
    superseded: int
    """A later prediction of the same user and match exists."""
    rejected: int
    """The user or the match does not exist, or the score is unreadable."""
    left: int


def _freshness(seconds: float, stale: float) -> Freshness:
    return Freshness(fresh=timedelta(seconds=seconds), stale=timedelta(seconds=stale))


_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_PUBLIC = LocalCache(max_entries=200, max_bytes=512 * 1024)
"""Per public resource and process: 16 of them use at most 8 MB."""
_SEASONAL = LocalCache(max_entries=50, max_bytes=128 * 1024)
_PERSONAL = LocalCache(max_entries=500, max_bytes=512 * 1024)
_COMPRESSED = Representation(compress_over=256)  # bytes: memory is scarcer than time
_SETTLED = _freshness(30 * _DAY, 7 * _DAY)
"""Past seasons."""
_LIVE_LIFE = _freshness(4, 15)

WINDOWS: Windows[AsyncEngine] = Windows(
    catalogue,
    "cache:match-window:v1",
    loaders.match_times,
    purpose="When the next match windows open and close",
)
SITE: HttpCache[AsyncEngine] = HttpCache(catalogue, "league", windows=WINDOWS, prewarm_rate=50)


def _league_page(
    name: str,
    load: Callable[[AsyncEngine, str], Awaitable[Any]],
    freshness: Freshness,
    in_window: Freshness,
    purpose: str,
    *,
    prewarm: bool = True,
) -> tuple[Resource[AsyncEngine], Resource[AsyncEngine]]:
    """Declare a page of the current season, and the same of a season by its id, or of all."""
    current = SITE.resource(
        f"league:{name}",
        load,
        freshness=freshness,
        in_window=in_window,
        prewarm=prewarm,
        representation=_COMPRESSED,
        local=_PUBLIC,
        purpose=purpose,
    )
    by_season = SITE.resource(
        f"league:{name}:{{season}}",
        seasons.of_season(load),
        accepts=seasons.is_season,
        freshness=freshness,
        in_window=in_window,
        settled=_SETTLED,
        missing=timedelta(seconds=10),
        prewarm=seasons.affected_seasons if prewarm else False,
        representation=_COMPRESSED,
        local=_SEASONAL,
        purpose=f"{purpose}, of a season or of all",
    )
    return current, by_season


TABLE, SEASON_TABLE = _league_page(
    "table",
    loaders.league_table,
    _freshness(7 * _DAY, _HOUR),
    _freshness(30, 5 * _MINUTE),
    "The table",
)
SCHEDULE, SEASON_SCHEDULE = _league_page(
    "schedule",
    loaders.league_schedule,
    _freshness(7 * _DAY, _HOUR),
    _freshness(20, 5 * _MINUTE),
    "The matches to come",
)
RESULTS, SEASON_RESULTS = _league_page(
    "results",
    loaders.league_results,
    _freshness(15 * _MINUTE, _HOUR),
    _freshness(15, 5 * _MINUTE),
    "The last results",
)
STATS, SEASON_STATS = _league_page(
    "stats",
    loaders.league_stats,
    _freshness(_HOUR, _HOUR),
    _freshness(45, 5 * _MINUTE),
    "Scorers and cards",
)
BRACKET, SEASON_BRACKET = _league_page(
    "bracket",
    loaders.league_bracket,
    _freshness(24 * _HOUR, _HOUR),
    _freshness(_HOUR, _HOUR),
    "The rounds of the cup",
    prewarm=False,
)
SEASONS = SITE.resource(
    "league:seasons",
    seasons.all_seasons,
    freshness=_freshness(24 * _HOUR, _HOUR),
    representation=_COMPRESSED,
    local=_SEASONAL,
    invalidated_by=("a new season", "the start of a season"),
    purpose="The competitions and their seasons",
)
META = SITE.resource(
    "md:{match_id}:meta",
    loaders.match_meta,
    freshness=_freshness(10 * _MINUTE, 10 * _MINUTE),
    missing=timedelta(seconds=10),
    accepts=loaders.is_id,
    prewarm=loaders.live_ids,
    representation=_COMPRESSED,
    local=_PUBLIC,
    purpose="The fixed data of a match",
)
LIVE = SITE.resource(
    "md:{match_id}:live",
    loaders.match_live,
    freshness=Freshness(fresh=loaders.LIVE_LIFETIME / 3, stale=loaders.LIVE_LIFETIME * 2 / 3),
    in_window=_LIVE_LIFE,
    missing=timedelta(seconds=10),
    accepts=loaders.is_id,
    prewarm=loaders.live_ids,
    representation=_COMPRESSED,
    local=_PUBLIC,
    invalidated_by=("a bump", "three hours after the match"),
    purpose="Score, events and votes of a match",
)
COMMENTS = SITE.resource(
    "md:{match_id}:comments",
    loaders.match_comments,
    freshness=_freshness(4 * _HOUR, 4 * _HOUR),
    missing=timedelta(seconds=10),
    accepts=loaders.is_id,
    representation=_COMPRESSED,
    local=_PUBLIC,
    purpose="The last 120 comments under a match",
)
VERSIONS = SITE.resource(
    "etag:md:{match_id}",
    loaders.match_versions,
    freshness=Freshness(fresh=loaders.LIVE_LIFETIME / 3, stale=loaders.LIVE_LIFETIME * 2 / 3),
    in_window=_LIVE_LIFE,
    missing=timedelta(seconds=10),
    accepts=loaders.is_id,
    local=_PUBLIC,
    purpose="The revisions of a match's parts",
)
LIVE_MATCHES = SITE.resource(
    "public:matches:live",
    loaders.matches_live,
    freshness=_LIVE_LIFE,
    prewarm=True,
    representation=_COMPRESSED,
    local=_PUBLIC,
    purpose="The live matches",
)
CLUB = SITE.resource(
    "public:club:{id}:matches",
    loaders.club_matches,
    freshness=_freshness(20 * _MINUTE, 20 * _MINUTE),
    in_window=_freshness(30, 5 * _MINUTE),
    missing=timedelta(seconds=10),
    accepts=loaders.is_id,
    representation=_COMPRESSED,
    local=_PUBLIC,
    purpose="All matches of a club",
)
ACTIVE = SITE.resource(
    "predictions:active:{range}",
    loaders.active_predictions,
    accepts=loaders.is_range,
    freshness=_freshness(300, 120),
    representation=_COMPRESSED,
    local=_PUBLIC,
    purpose="The matches that can be predicted",
)
MINE = SITE.resource(
    "predictions:user:{user_id}",
    loaders.user_predictions,
    freshness=_freshness(300, 120),
    representation=replace(_COMPRESSED, private="user_id"),
    local=_PERSONAL,
    purpose="A user's predictions",
)
BOARD = SITE.resource(
    "lb:{board}",
    loaders.leaderboard,
    accepts=loaders.is_board,
    freshness=_freshness(60, 120),
    prewarm=loaders.boards,
    representation=_COMPRESSED,
    local=_PUBLIC,
    purpose="The first page of a leaderboard",
)
SEASON_BOARD = SITE.resource(
    "lb:{board}:{season}",
    seasons.of_season(loaders.leaderboard),
    accepts=loaders.is_season_board,
    freshness=_freshness(60, 120),
    settled=_SETTLED,
    missing=timedelta(seconds=10),
    prewarm=loaders.affected_boards,
    representation=_COMPRESSED,
    local=_SEASONAL,
    purpose="The first page of a season's leaderboard, or of all seasons",
)
ACHIEVEMENTS = SITE.resource(
    "achievements:{user_id}",
    loaders.achievements,
    freshness=_freshness(30 * _MINUTE, 30 * _MINUTE),
    missing=timedelta(seconds=10),
    accepts=loaders.is_id,
    representation=_COMPRESSED,
    local=_PERSONAL,
    purpose="A user's achievements",
)
ADS = SITE.resource(
    "ads:all",
    loaders.all_ads,
    freshness=_freshness(600, 600),
    representation=_COMPRESSED,
    local=_PUBLIC,
    purpose="The advertisements",
)
ADMIN_STATS = SITE.resource(
    "admin:stats",
    loaders.admin_stats,
    freshness=_freshness(_HOUR, _HOUR),
    local=_PUBLIC,
    invalidated_by=("a finalization",),
    purpose="Row counts, for administrators",
)

RESOURCES: tuple[Resource[AsyncEngine], ...] = tuple(SITE.resources)

SESSIONS = Sessions(
    catalogue,
    "league:session:{session_id}",
    Session,
    user="user_id",
    index="league:user_sessions:{user_id}",
    lifetime=sliding(hours=24, outlives="the browser's use of it"),
    absolute_lifetime=timedelta(days=30),
    kind="value",
    role="queue",
    max_per_user=10,
)

_VOTED = timedelta(days=30)
"""How long before a match people vote; a vote is about 100 bytes, and the server may have 25 MB."""
VOTES = DeferredRecords(
    catalogue,
    "votes",
    Vote,
    flush_every=timedelta(seconds=5),
    idempotency_ttl=_VOTED,
    purpose="Votes on matches that are not in SQL yet",
)

LIMITS = RateLimits(
    catalogue,
    "league:rate",
    sliding_window("live", 15, per=timedelta(seconds=10), key="league:rate:live:{subject}"),
    sliding_window(
        "sign-in",
        20,
        per=timedelta(minutes=10),
        key="league:rate:sign-in:{subject}",
        when_down=local_share(of=1),
    ),
    sliding_window("pages", 60, per=timedelta(seconds=10), key="league:rate:pages:{subject}"),
    sliding_window(
        "comment",
        10,
        per=timedelta(minutes=1),
        key="league:rate:comment:{subject}",
        when_down=local_share(of=1),
    ),
    sliding_window(
        "predict",
        60,
        per=timedelta(minutes=1),
        key="league:rate:predict:{subject}",
        when_down=local_share(of=1),
    ),
    sliding_window(
        "vote",
        60,
        per=timedelta(minutes=1),
        key="league:rate:vote:{subject}",
        when_down=local_share(of=1),
    ),
    sliding_window(
        "register",
        10,
        per=timedelta(hours=1),
        key="league:rate:register:{subject}",
        when_down=local_share(of=1),
    ),
    sliding_window(
        "register-total",
        3600,
        per=timedelta(hours=1),
        key="league:rate:registered:{subject}",
        when_down=local_share(of=1),
    ),
    sliding_window(
        "admin", 600, per=timedelta(minutes=1), key="league:rate:admin:{subject}", when_down=local_share(of=1)
    ),
    role="queue",
)

ATTEMPTS = SignInAttempts(catalogue, "sign_in")
"""Wrong passwords for one name, from any number of addresses."""

ADMINS = Fanout(catalogue, "ws:admin:{user_id}", AdminEvent, channel="admin:events")

FINALIZATION_LOCK = Locks(
    catalogue,
    "lock:finalization",
    lease=timedelta(seconds=10),
    purpose="One finalization at a time, until its pages have changed",
)
DEMO_LOCK = Locks(
    catalogue,
    "lock:demo",
    lease=timedelta(seconds=15),
    purpose="One process plays the matches of the demo",
)
LEGACY = catalogue.value(
    "predictions:legacy",
    LegacyProgress,
    lifetime=fixed(minutes=5),
    purpose="How far the migration of old predictions is; written by each of its batches",
    saves="counting all old records for each batch and each look at the monitor",
    if_lost="the records are counted again",
)
LEGACY_LOCK = Locks(
    catalogue,
    "lock:predictions:legacy",
    lease=timedelta(seconds=30),
    purpose="One process migrates old predictions",
)
LEADERBOARDS_LOCK = Locks(
    catalogue, "lock:leaderboards", lease=timedelta(seconds=10), purpose="One process computes leaderboards"
)

TABLES = declare_tables(catalogue, changes.metadata)
"""The service's own tables in SQL, those of the administration included, for `ephemera migrate`."""
