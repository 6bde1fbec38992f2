"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from obstore.exceptions import BaseError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed, EphemeraError
from ephemera.operations.survey import read_server_info
from ephemera.patterns.fanout import BoundFanout
from ephemera.patterns.http_cache import BoundHttpCache
from ephemera.web import ClientAddress, Problem
from ephemera_services.league import demo_data
from ephemera_services.league.accounts import Accounts
from ephemera_services.league.administration.editor import Editor
from ephemera_services.league.administration.live_control import LiveControl
from ephemera_services.league.database_figures import DatabaseMeter
from ephemera_services.league.demo_referee import Referee
from ephemera_services.league.figures import RequestMeter
from ephemera_services.league.keys import ADMINS, ATTEMPTS, LIMITS, SITE, WINDOWS, AdminEvent
from ephemera_services.league.leaderboards import Leaderboards
from ephemera_services.league.legacy_predictions import LegacyPredictions
from ephemera_services.league.matches import Matches
from ephemera_services.league.metrics import Metrics
from ephemera_services.league.monitor import Monitor, Report
from ephemera_services.league.page_objects import PageObjects
from ephemera_services.league.peak import PeakAdaptation
from ephemera_services.league.settings import Settings
from ephemera_services.league.supporters import Supporters
from ephemera_services.runtime import (
    BoundSignInAttempts,
    InvalidSettings,
    OpenStreams,
    Passwords,
    Resources,
    cancel_and_wait,
)

_SOCKETS = 20  # of one administrator or helper, for each process

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class League:
    """The parts that the routes use."""

    settings: Settings
    engine: AsyncEngine
    store: Store
    client: ClientAddress
    attempts: BoundSignInAttempts
    site: BoundHttpCache[AsyncEngine]
    admins: BoundFanout[AdminEvent]
    passwords: Passwords
    accounts: Accounts
    editor: Editor
    live_control: LiveControl
    matches: Matches
    supporters: Supporters
    leaderboards: Leaderboards
    legacy_predictions: LegacyPredictions
    monitor: Monitor
    sockets: OpenStreams = field(default_factory=lambda: OpenStreams(_SOCKETS))
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Background work after a finalization."""
    result_waits: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether there is such work that has not begun: it serves all results until it does."""
    computing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def report(self) -> Report:
        """The monitoring report."""
        waiting = legacy = None
        with suppress(ConnectionFailed):
            waiting = await self.supporters.waiting()
            legacy = await self.legacy_predictions.progress()
        return await self.monitor.report(waiting, legacy)

    def after_result(self) -> None:
        """Compute leaderboards and prewarm pages in the background, after a finalization."""
        if self.result_waits.is_set():
            return
        self.result_waits.set()
        task = asyncio.create_task(self._after_result())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _after_result(self) -> None:
        async with self.computing:
            self.result_waits.clear()
            try:
                await self.leaderboards.compute()
                if self.settings.prewarm:
                    await self.site.prewarm()
            except (EphemeraError, SQLAlchemyError, OSError):
                logger.warning("leaderboards and pages were not updated after a result", exc_info=True)


@asynccontextmanager
async def open_league(
    settings: Settings, resources: Resources, meter: RequestMeter, database: DatabaseMeter
) -> AsyncIterator[League]:
    """Open the service with its background work: votes, leaderboards, old predictions, prewarming."""
    engine, store = resources.engine, resources.store
    database.attach(engine, Metrics(resources.registry))
    limits = store[LIMITS]
    limits.set_limit(LIMITS["live"], settings.requests_per_10_seconds)
    limits.set_limit(LIMITS["pages"], settings.pages_per_10_seconds)
    limits.set_limit(LIMITS["comment"], settings.comments_per_minute)
    limits.set_limit(LIMITS["predict"], settings.predictions_per_minute)
    limits.set_limit(LIMITS["vote"], settings.votes_per_minute)
    limits.set_limit(LIMITS["admin"], settings.administration_per_minute)
    limits.set_limit(LIMITS["sign-in"], settings.sign_ins_per_10_minutes)
    limits.set_limit(LIMITS["register"], settings.registrations_per_hour)
    limits.set_limit(LIMITS["register-total"], settings.all_registrations_per_hour)
    objects = _objects(settings, store[SITE])
    passwords = Passwords(settings.password_memory)
    peak = PeakAdaptation(store, meter, settings.peak_requests_per_second)
    leaderboards = Leaderboards(engine, store, settings.leaderboards_every)
    editor = Editor(engine, store)
    league = League(
        settings=settings,
        engine=engine,
        store=store,
        client=ClientAddress(settings.trusted_proxies),
        attempts=store[ATTEMPTS],
        site=_site(settings, store),
        admins=store[ADMINS],
        passwords=passwords,
        accounts=Accounts(engine, passwords),
        editor=editor,
        live_control=LiveControl(engine, editor),
        matches=Matches(engine, editor),
        supporters=Supporters(engine, store),
        leaderboards=leaderboards,
        legacy_predictions=LegacyPredictions(engine, store, leaderboards),
        monitor=Monitor(store, meter, database, peak),
    )
    league.attempts.set_limit(settings.wrong_passwords_per_hour)
    await _ensure_administrator(league)
    if settings.demo:
        await demo_data.seed(league)
    await _apply_memory_budget(settings, store)
    if settings.prewarm:
        league.site.prewarm_at_openings()
    working = [
        asyncio.create_task(work)
        for work in (league.leaderboards.run(), league.legacy_predictions.run(), peak.run())
    ]
    if objects is not None:
        working.append(asyncio.create_task(objects.run()))
    if settings.demo and settings.demo_referee:
        working.append(asyncio.create_task(Referee(league).run()))
    try:
        async with league.supporters.flusher, editor.sign_outs.run():
            yield league
    finally:
        await cancel_and_wait([*working, *league.tasks])
        passwords.close()
        if objects is not None:
            objects.close()


def _objects(settings: Settings, site: BoundHttpCache[AsyncEngine]) -> PageObjects | None:
    """Have large pages in an object store, if there is one."""
    if settings.object_store_url is None:
        return None
    try:
        objects = PageObjects(settings.object_store_url)
    except (BaseError, OSError) as problem:
        raise InvalidSettings([f"EPHEMERA_LEAGUE_OBJECT_STORE_URL: {problem}"]) from None
    site.store_bodies_in(objects, over=settings.object_store_over)
    return objects


def _site(settings: Settings, store: Store) -> BoundHttpCache[AsyncEngine]:
    store[WINDOWS].configure(
        lead_time=timedelta(minutes=settings.match_window_prewarm_minutes),
        grace=timedelta(minutes=settings.match_window_post_grace_minutes),
        lookahead=timedelta(days=settings.match_window_lookahead_days),
    )
    if settings.rehearse_ahead is not None:
        store[WINDOWS].time_offset = settings.rehearse_ahead
    return store[SITE]


async def _ensure_administrator(league: League) -> None:
    name, password = league.settings.admin_name, league.settings.admin_password
    if name is None or password is None or await league.accounts.by_name(name) is not None:
        return
    try:
        await league.accounts.register(name, password.reveal(), "admin")
    except Problem:  # another process created it
        return
    logger.info("created the administrator")


async def _apply_memory_budget(settings: Settings, store: Store) -> None:
    """Limit the memory of an embedded cache; for another server only warn if it has no such limit.

    Sessions, limits and votes that are not in SQL yet are on the embedded queue, which never evicts.
    """
    if settings.redis_megabytes is None:
        return
    limit = settings.redis_megabytes * 1024 * 1024
    if settings.url is None:
        call = store.client("cache").call
        await call("CONFIG", "SET", "maxmemory", limit, "maxmemory-policy", "allkeys-lru")
        return
    try:
        nodes: Sequence[Any] = store.client("cache").nodes()
        found = sum([(await read_server_info(node)).max_memory for node in nodes])
    except EphemeraError:
        return
    if found == 0 or found > limit:
        logger.warning("Redis may use more than the budget", extra={"budget": limit, "maxmemory": found})
