"""Everything that the league keeps in Redis, with its lifetime outside of match windows and inside.

All of it may vanish but the votes that wait for SQL. A page carries its own version and ETag, so the design's
`__v:{key}` is the number of an entry, which is never there without its page, and its `__lock:{key}` is
`loading:{key}`, which has a token. `etag:md:{match_id}` is a small page of its own: the revisions of a
match's parts, for clients that would otherwise poll three.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, sliding
from ephemera.patterns.cache import LocalCache
from ephemera.patterns.fanout import Fanout
from ephemera.patterns.http_cache import Freshness, HttpCache, Representation, Resource
from ephemera.patterns.locks import Locks
from ephemera.patterns.rate_limits import RateLimits, local_share, sliding_window
from ephemera.patterns.sessions import Sessions
from ephemera.patterns.windows import Windows
from ephemera.patterns.write_behind import DeferredRecords
from ephemera_services.league import loaders

catalogue = Catalogue("league")


class Session(msgspec.Struct, frozen=True):
    """Who is signed in."""

    user_id: str
    name: str
    role: Literal["user", "admin"]


class Vote(msgspec.Struct, frozen=True):
    """Who a user thinks will win a match."""

    user_id: int
    match_id: int
    choice: Literal["home", "draw", "away"]


class AdminEvent(msgspec.Struct, frozen=True):
    """News for administrators: what happened, to which match."""

    kind: Literal["score", "event", "finalized", "votes", "ads"]
    match_id: int | None = None
    count: int = 1


def _freshness(seconds: float, stale: float) -> Freshness:
    return Freshness(fresh=timedelta(seconds=seconds), stale=timedelta(seconds=stale))


_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_BUDGET = LocalCache(max_entries=200, max_bytes=512 * 1024)
"""Of each public resource in each process: 16 of them are at most 8 MB."""
_PERSONAL = LocalCache(max_entries=500, max_bytes=512 * 1024)
_COMPRESSED = Representation(compress_over=256)  # bytes: memory is scarcer than time
_SEEN_AGAIN = _freshness(4, 15)

WINDOWS: Windows[AsyncEngine] = Windows(
    catalogue,
    "cache:match-window:v1",
    loaders.match_times,
    purpose="When the next match windows open and close",
)
SITE: HttpCache[AsyncEngine] = HttpCache(catalogue, "league", windows=WINDOWS, prewarm_rate=50)

TABLE = SITE.resource(
    "league:table",
    loaders.league_table,
    freshness=_freshness(7 * _DAY, _HOUR),
    in_window=_freshness(30, 5 * _MINUTE),
    prewarm=True,
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The table",
)
SCHEDULE = SITE.resource(
    "league:schedule",
    loaders.league_schedule,
    freshness=_freshness(7 * _DAY, _HOUR),
    in_window=_freshness(20, 5 * _MINUTE),
    prewarm=True,
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The matches to come",
)
RESULTS = SITE.resource(
    "league:results",
    loaders.league_results,
    freshness=_freshness(15 * _MINUTE, _HOUR),
    in_window=_freshness(15, 5 * _MINUTE),
    prewarm=True,
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The last results",
)
STATS = SITE.resource(
    "league:stats",
    loaders.league_stats,
    freshness=_freshness(_HOUR, _HOUR),
    in_window=_freshness(45, 5 * _MINUTE),
    prewarm=True,
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="Scorers and cards of the season",
)
BRACKET = SITE.resource(
    "league:bracket",
    loaders.league_bracket,
    freshness=_freshness(24 * _HOUR, _HOUR),
    in_window=_freshness(_HOUR, _HOUR),
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The rounds of the cup",
)
META = SITE.resource(
    "md:{match_id}:meta",
    loaders.match_meta,
    freshness=_freshness(10 * _MINUTE, 10 * _MINUTE),
    missing=timedelta(seconds=10),
    prewarm=loaders.live_ids,
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="What stays as it is while a match is played",
)
LIVE = SITE.resource(
    "md:{match_id}:live",
    loaders.match_live,
    freshness=Freshness(fresh=loaders.LIVE_OUTSIDE / 3, stale=loaders.LIVE_OUTSIDE * 2 / 3),
    in_window=_SEEN_AGAIN,
    missing=timedelta(seconds=10),
    prewarm=loaders.live_ids,
    representation=_COMPRESSED,
    local=_BUDGET,
    invalidated_by=("a bump", "three hours after the match"),
    purpose="Score, events and votes of a match",
)
COMMENTS = SITE.resource(
    "md:{match_id}:comments",
    loaders.match_comments,
    freshness=_freshness(4 * _HOUR, 4 * _HOUR),
    missing=timedelta(seconds=10),
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The last 120 comments under a match",
)
VERSIONS = SITE.resource(
    "etag:md:{match_id}",
    loaders.match_versions,
    freshness=Freshness(fresh=loaders.LIVE_OUTSIDE / 3, stale=loaders.LIVE_OUTSIDE * 2 / 3),
    in_window=_SEEN_AGAIN,
    missing=timedelta(seconds=10),
    local=_BUDGET,
    purpose="Which revisions the parts of a match have",
)
LIVE_MATCHES = SITE.resource(
    "public:matches:live",
    loaders.matches_live,
    freshness=_SEEN_AGAIN,
    prewarm=True,
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The matches that are being played",
)
CLUB = SITE.resource(
    "public:club:{id}:matches",
    loaders.club_matches,
    freshness=_freshness(20 * _MINUTE, 20 * _MINUTE),
    in_window=_freshness(30, 5 * _MINUTE),
    missing=timedelta(seconds=10),
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="All matches of a club",
)
ACTIVE = SITE.resource(
    "predictions:active:{range}",
    loaders.active_predictions,
    freshness=_freshness(300, 120),
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The matches that can be predicted",
)
MINE = SITE.resource(
    "predictions:user:{user_id}",
    loaders.user_predictions,
    freshness=_freshness(300, 120),
    private="user_id",
    representation=_COMPRESSED,
    local=_PERSONAL,
    purpose="What a user has foretold",
)
BOARD = SITE.resource(
    "lb:{board}",
    loaders.leaderboard,
    freshness=_freshness(60, 120),
    prewarm=loaders.boards,
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The first page of a leaderboard",
)
ACHIEVEMENTS = SITE.resource(
    "achievements:{user_id}",
    loaders.achievements,
    freshness=_freshness(30 * _MINUTE, 30 * _MINUTE),
    missing=timedelta(seconds=10),
    representation=_COMPRESSED,
    local=_PERSONAL,
    purpose="What a user has achieved",
)
ADS = SITE.resource(
    "ads:all",
    loaders.all_ads,
    freshness=_freshness(600, 600),
    representation=_COMPRESSED,
    local=_BUDGET,
    purpose="The advertisements",
)
ADMIN_STATS = SITE.resource(
    "admin:stats",
    loaders.admin_stats,
    freshness=_freshness(_HOUR, _HOUR),
    local=_BUDGET,
    invalidated_by=("a finalization",),
    purpose="How much of everything there is, for administrators",
)

RESOURCES: tuple[Resource[AsyncEngine], ...] = tuple(SITE.resources)

SESSIONS = Sessions(
    catalogue,
    "session:{session_id}",
    Session,
    user="user_id",
    lifetime=sliding(hours=24),
    kind="value",
    max_per_user=10,
)

_VOTED = timedelta(days=30)
"""As long as people vote on a match before it; a vote is about 100 bytes, and the server may have 25 MB."""
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
    "rate",
    sliding_window("live", 15, per=timedelta(seconds=10), key="rate:live:{subject}"),
    sliding_window(
        "sign-in", 20, per=timedelta(minutes=10), key="rate:sign-in:{subject}", when_down=local_share(of=1)
    ),
)

ADMINS = Fanout(catalogue, "ws:admin:{user_id}", AdminEvent, channel="admin:events")

FINALIZING = Locks(
    catalogue,
    "lock:finalization",
    lease=timedelta(seconds=10),
    purpose="One result at a time, until its pages have changed",
)
COMPUTING = Locks(
    catalogue, "lock:leaderboards", lease=timedelta(seconds=10), purpose="One process computes leaderboards"
)
