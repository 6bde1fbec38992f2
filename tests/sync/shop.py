"""A catalogue with one of every pattern, for synchronous code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import sqlalchemy as sa

from ephemera import (
    Cache,
    Catalogue,
    DeferredCounters,
    DeferredRecords,
    Entitlements,
    Events,
    Fanout,
    Freshness,
    HttpCache,
    Jobs,
    Locks,
    Plan,
    Planner,
    Preferences,
    Progress,
    RateLimits,
    ReadWriteLocks,
    Revocation,
    Semaphores,
    Sessions,
    TokenKind,
    Usage,
    Windows,
    fixed,
    sliding,
    sliding_window,
)
from ephemera.patterns.jobs import Retry, Run

CATALOGUE = Catalogue("sync_shop")
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Account(msgspec.Struct):
    """A record: a session, an event, a setting."""

    user_id: str = "ann"
    theme: str = "light"


class Done(msgspec.Struct, tag="done"):
    """The last event of a progress."""


class Step(msgspec.Struct, tag="step"):
    """An event of a progress."""

    number: int


VALUE = CATALOGUE.value("sync:value:{name}", Account, lifetime=fixed(hours=1), purpose="A value")
RENEWED = CATALOGUE.value("sync:renewed:{name}", str, lifetime=sliding(hours=1), purpose="Read keeps it")
FLAG = CATALOGUE.flag("sync:flag:{name}", lifetime=fixed(hours=1), purpose="A flag")
COUNTER = CATALOGUE.counter("sync:counter:{name}", lifetime=fixed(hours=1), purpose="A counter")
HASH = CATALOGUE.hash("sync:hash:{name}", Account, lifetime=fixed(hours=1), purpose="A hash")
MAPPING = CATALOGUE.mapping("sync:mapping:{name}", int, lifetime=fixed(hours=1), purpose="A mapping")
LIST = CATALOGUE.list("sync:list:{name}", int, lifetime=fixed(hours=1), max_length=9, purpose="A list")
SET = CATALOGUE.set("sync:set:{name}", str, lifetime=fixed(hours=1), purpose="A set")
SORTED = CATALOGUE.sorted_set("sync:sorted:{name}", str, lifetime=fixed(hours=1), purpose="A sorted set")
STREAM = CATALOGUE.stream(
    "sync:stream:{name}", Account, lifetime=fixed(hours=1), max_length=9, purpose="A stream"
)
CHANNEL = CATALOGUE.channel("sync:channel:{name}", str, purpose="A channel")

SESSIONS = Sessions(CATALOGUE, "sync:session:{token}", Account, user="user_id", lifetime=sliding(hours=1))
PROFILES = Cache(CATALOGUE, "sync:profile:{user_id}", Account, fresh=MINUTE, stale=HOUR, purpose="Profiles")
PLANS = Entitlements(CATALOGUE, "sync:plan:{user_id}", Account, lifetime=fixed(hours=1))
LOOK = Preferences(CATALOGUE, "sync:look:{user_id}", Account)
SIGN_INS = sliding_window("sign_ins", 3, per=HOUR)
LIMITS = RateLimits(CATALOGUE, "sync_rate", SIGN_INS)
LOCKS = Locks(CATALOGUE, "sync:lock:{name}", lease=timedelta(seconds=1), purpose="A lock")
PERMITS = Semaphores(CATALOGUE, "sync:permits:{name}", permits=2, lease=timedelta(seconds=5), purpose="Two")
BOOKS = ReadWriteLocks(CATALOGUE, "sync:book:{name}", lease=timedelta(seconds=5), purpose="A book")
EVENTS = Events(CATALOGUE, "sync:events:{name}", Account, purpose="Events")
PROGRESS: Progress[Step | Done] = Progress(
    CATALOGUE, "sync:progress:{job_id}", Step | Done, wake="sync:wake", terminal=Done
)
FANOUT = Fanout(CATALOGUE, "sync:online:{user_id}", Account, channel="sync:messages")
REVOKED = Revocation(CATALOGUE, tokens={"access": TokenKind("sync:revoked:{jti}", HOUR)})
USAGE = Usage(CATALOGUE, "sync_usage", measures=["tokens"], purpose="Usage")
METADATA = sa.MetaData()
USAGE_TABLE = sa.Table(
    "sync_usage_records",
    METADATA,
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("tokens", sa.BigInteger, nullable=False),
)
VIEWS = DeferredCounters(CATALOGUE, "sync_views", key=["page"], measures=["views"], purpose="Views")
VOTES = DeferredRecords(CATALOGUE, "sync_votes", Account, purpose="Votes")


async def matches(source: list[datetime], since: datetime, until: datetime) -> list[datetime]:
    """The schedule of a declaration stays async."""
    return [match for match in source if since <= match <= until]


async def load_table(source: list[datetime]) -> str:
    """The loader of a declaration stays async."""
    return f"{len(source)} matches"


MATCHES = Windows(CATALOGUE, "sync:windows", matches)
SITE = HttpCache(CATALOGUE, "sync_site", windows=MATCHES)
TABLE = SITE.resource("sync:table", load_table, freshness=Freshness(fresh=HOUR), purpose="The table")
SOURCE = [datetime.now(UTC) + timedelta(days=1)]

JOBS = Jobs(CATALOGUE, "sync:checkpoint:{job_id}", queues=("work",), name="sync_jobs")


@JOBS.job(queue="work", retry=Retry(attempts=2), time_limit=MINUTE)
async def double(run: Run, number: int) -> int:
    """A job."""
    return 2 * number


FREE = Plan(novelty=1, every=HOUR, active_within=timedelta(days=7), cooldown=timedelta(0))
FEED = Planner(CATALOGUE, sa.MetaData(), name="sync_feed", plans={"free": FREE})
