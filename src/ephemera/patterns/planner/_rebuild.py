"""A worker's run on one user: lock, recount, build, save; what was read is what is marked as seen.

1. The worker acquires `lock:user:{u}`, with a fencing token. While Redis is down, the user's row replaces the
   lock.
2. The run begins in SQL: the token is written to the user's row, if it is larger than the one there, and the
   bounds of the dataset are read. From here on SQL refuses every run that began earlier.
3. The application builds clusters from the dataset.
4. One transaction saves them. It is refused unless the row still has this token and the version that the run
   began with. The high-water marks advance to the seqs of the dataset, not to what has arrived since; that is
   counted, and if it is enough, the user is rechecked.
5. The working set in Redis follows. If that fails it errs on the side of more novelty, which a later recount
   corrects.

A worker killed before the commit has changed nothing but the token, and the user is rechecked when the
enqueued mark expires. One killed after it has lost nothing. No novelty is saved twice: the version prevents
it. A run that fails, or loses its lock, frees the user's row.

A run counts as an attempt when it begins, so that one that kills its worker counts too. After an attempt that
failed the user waits: 5 minutes, twice as long each time, up to 6 hours. Runs before that (a queue
that retries) are not counted again. After `max_attempts` the user is parked and not enqueued any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.errors import ConnectionFailed, EphemeraError, LockLost, StaleFencingToken
from ephemera.patterns.locks import BoundLocks
from ephemera.patterns.planner._queries import Queries
from ephemera.patterns.planner._tables import interval, milliseconds_of, server_time
from ephemera.patterns.planner._tick import ENQUEUED_MS, Plan, UserFacts, trigger
from ephemera.patterns.planner._working_set import WorkingSet

_log = logging.getLogger("ephemera.planner")
_ABANDON_TIMEOUT = 5.0  # seconds for SQL to record that a run is abandoned
_MAX_REST = 72  # times `ENQUEUED_MS`: 6 hours
_MAX_ERROR = 500  # characters of an error that are stored
_MAX_DELETED = 100  # old versions of clusters that one save deletes

RebuildOutcome: TypeAlias = Literal["rebuilt", "nothing new", "not due", "busy", "overtaken", "unknown user"]
"""How a run ended; only `rebuilt` has changed the user's clusters."""


class Span(NamedTuple):
    """A channel's part of a dataset: the insights with `after < seq <= upto`."""

    channel_id: str
    after: int  # the window's start, or the high-water mark where that is lower
    upto: int
    seen: int  # the high-water mark: what is above it was never clustered for this user


class Dataset(NamedTuple):
    """The insights that a run clusters."""

    user_id: str
    plan: str
    pending: int  # insights never clustered for this user
    version: int  # of the clusters that this run builds
    fence: int  # the run's fencing token
    spans: tuple[Span, ...]


class RebuildRun(msgspec.Struct):
    """The result of a run."""

    user_id: str
    outcome: RebuildOutcome
    version: int = 0  # the user's version after the run
    pending: int = 0  # insights there were to cluster
    left: int = 0  # insights that arrived during the run
    seconds: float = 0.0


Build: TypeAlias = Callable[[Dataset], Awaitable[Any]]
"""Builds the clusters of a dataset: what the column `clusters` takes, which is JSON by default."""
Invalidate: TypeAlias = Callable[[str, int], Awaitable[None]]
"""Called with the user and the new version after the commit."""
OnSave: TypeAlias = Callable[[AsyncConnection, Dataset], Awaitable[None]]
"""Writes more in the transaction that saves the clusters."""


class Rebuilder:
    """The worker's side of a planner."""

    def __init__(
        self,
        plan_of: Callable[[str], Plan],
        run_timeout: timedelta,
        locks: BoundLocks,
        working_set: WorkingSet,
        queries: Queries,
        versions_kept: int | None,
    ) -> None:
        self._plan_of = plan_of
        self._run_timeout = run_timeout.total_seconds()
        self._locks = locks
        self._working_set = working_set
        self._runs = SqlRuns(queries, run_timeout, versions_kept)

    async def rebuild(
        self,
        user: str,
        build: Build,
        *,
        invalidate: Invalidate | None,
        on_save: OnSave | None,
        force: bool,
    ) -> RebuildRun:
        """Do one run; see `BoundPlanner.rebuild`."""
        began = time.perf_counter()
        run = RebuildRun(user, "busy")
        try:
            async with AsyncExitStack() as held, asyncio.timeout(self._run_timeout) as timeout:
                fence = await self._acquire(user, held)
                if fence is not None:
                    await self._run(run, fence, build, invalidate, on_save, force, timeout)
        except (LockLost, StaleFencingToken):
            if run.outcome != "rebuilt":
                run.outcome = "overtaken"
        run.seconds = time.perf_counter() - began
        return run

    async def _acquire(self, user: str, held: AsyncExitStack) -> int | None:
        """Return the token of the user's lock; 0 when SQL has to issue one; None when the lock is taken."""
        try:
            lock = await held.enter_async_context(self._locks.try_hold(user_id=user))
        except ConnectionFailed:
            return 0
        return None if lock is None else lock.fence

    async def _run(
        self,
        run: RebuildRun,
        fence: int,
        build: Build,
        invalidate: Invalidate | None,
        on_save: OnSave | None,
        force: bool,
        timeout: asyncio.Timeout,
    ) -> None:
        user = run.user_id
        started = await self._runs.begin(user, fence)
        if isinstance(started, str):
            run.outcome = started
            return
        dataset, clustered_at, now = started
        run.version, run.pending = dataset.version - 1, dataset.pending
        plan = self._plan_of(dataset.plan)
        due = trigger(plan, UserFacts(dataset.plan, dataset.pending, clustered_at), now)
        if dataset.pending == 0 or not (due or force):
            run.outcome = "not due" if dataset.pending else "nothing new"
            run.left = (await self._runs.end_unsaved(dataset, plan, nothing_new=dataset.pending == 0)).left
            await self._follow(self._working_set.evict_user(user))
            return
        try:
            clusters = await build(dataset)
            saved = await self._runs.save(dataset, plan, clusters, on_save)
        except BaseException as problem:
            await self._abandon(dataset, self._failure(problem, timeout))
            raise
        run.outcome, run.version, run.left = "rebuilt", dataset.version, saved.left
        seqs = {span.channel_id: span.upto for span in dataset.spans if span.upto > span.seen}
        await self._follow(
            self._working_set.record_rebuild(
                user,
                seqs,
                cluster_version=dataset.version,
                last_clustered_at=saved.at,
                pending=saved.left,
            )
        )
        if invalidate is not None:
            await invalidate(user, dataset.version)

    def _failure(self, problem: BaseException, timeout: asyncio.Timeout) -> Exception | None:
        """Return why a run failed; None when it was cancelled or overtaken, which is not its data's fault."""
        if timeout.expired():
            return TimeoutError(f"the run took longer than {self._run_timeout} s")
        overtaken = isinstance(problem, (LockLost, StaleFencingToken))
        return problem if isinstance(problem, Exception) and not overtaken else None

    async def _abandon(self, dataset: Dataset, problem: Exception | None) -> None:
        """Free the user at once if SQL can be reached; otherwise the run's deadline frees them."""
        try:
            async with asyncio.timeout(_ABANDON_TIMEOUT):
                await self._runs.abandon(dataset, problem)
        except Exception:  # what ended the run is what matters
            _log.info("the user %s is released when the run's time is over", dataset.user_id)

    async def _follow(self, update: Awaitable[None]) -> None:
        """Update the working set after SQL; if that fails, a later recount evicts what it has."""
        try:
            await update
        except LockLost:
            raise
        except EphemeraError:
            return


def describe(problem: Exception) -> str:
    """Return the text of an error, even of one whose `__str__` fails."""
    try:
        return str(problem)
    except Exception:
        return "an error that has no text"


class StartedRun(NamedTuple):
    """A run that began, when the user was last clustered, and the time."""

    dataset: Dataset
    clustered_at: int
    now: int


class SavedRun(NamedTuple):
    """How many insights were left when a run ended, and when the user was last clustered."""

    left: int
    at: int


class SqlRuns:
    """The SQL side of a run: it begins with a fencing token, and no older token can save."""

    def __init__(self, queries: Queries, run_timeout: timedelta, versions_kept: int | None) -> None:
        self._versions_kept = versions_kept
        self._queries = queries
        self._tables = queries.tables
        self._users = queries.tables.user_stats
        self._run_timeout = run_timeout

    async def begin(self, user: str, fence: int) -> StartedRun | Literal["busy", "unknown user"]:
        """Begin a run that is later than all before it, or refuse it. For a fence of 0, SQL issues one."""
        c = self._users.c
        issued = sa.func.greatest(c.fence + 1, sa.func.floor(sa.extract("epoch", server_time()) * 1_000_000))
        allowed = c.fence < fence if fence else c.running_until.is_(None) | (c.running_until <= server_time())
        rests = c.retry_at.is_not(None) & (c.retry_at > server_time())
        rest = interval(ENQUEUED_MS) * sa.func.least(
            sa.func.power(2, sa.func.least(c.attempts, 16)), _MAX_REST
        )
        begin = (
            sa.update(self._users)
            .where(c.user_id == user, allowed)
            .values(
                fence=fence or issued,
                running_until=server_time() + self._run_timeout,
                attempts=sa.case((rests, c.attempts), else_=c.attempts + 1),
                retry_at=sa.case((rests, c.retry_at), else_=server_time() + rest),
            )
            .returning(
                c.plan,
                c.cluster_version,
                c.fence,
                milliseconds_of(c.last_clustered_at),
                milliseconds_of(server_time()),
            )
        )
        async with self._queries.engine.begin() as sql:
            row = (await sql.execute(begin)).first()
            if row is None:
                return await self._refusal(sql, user, fence)
            spans = await self._spans(sql, user)
        plan, version, token, clustered_at, at = row
        pending = sum(span.upto - span.seen for span in spans)
        return StartedRun(Dataset(user, plan, pending, version + 1, token, spans), clustered_at, at)

    async def _refusal(self, sql: AsyncConnection, user: str, fence: int) -> Literal["busy", "unknown user"]:
        known = sa.select(self._users.c.user_id).where(self._users.c.user_id == user)
        if (await sql.execute(known)).first() is None:
            return "unknown user"
        if fence:
            raise StaleFencingToken(user, fence)
        return "busy"

    async def _spans(self, sql: AsyncConnection, user: str) -> tuple[Span, ...]:
        t, high_water = self._tables, self._queries.high_water
        s, h, c = t.subscriptions, t.user_cluster_hwm, t.channels
        query = (
            sa.select(c.c.channel_id, high_water, c.c.current_seq, self._queries.window_start(c))
            .select_from(
                s.join(c, s.c.channel_id == c.c.channel_id).outerjoin(
                    h, (h.c.user_id == s.c.user_id) & (h.c.channel_id == s.c.channel_id)
                )
            )
            .where(s.c.user_id == user)
            .order_by(c.c.channel_id)
        )
        return tuple(
            Span(channel, min(seen, window), max(seen, upto), seen)
            for channel, seen, upto, window in await sql.execute(query)
        )

    async def save(self, dataset: Dataset, plan: Plan, clusters: Any, on_save: OnSave | None) -> SavedRun:
        """Save clusters and what follows from them; `StaleFencingToken` when a later run began."""
        async with self._queries.engine.begin() as sql:
            await self._admit(sql, dataset, cluster_version=dataset.version)
            await sql.execute(
                sa.insert(self._tables.clusters).values(
                    user_id=dataset.user_id, cluster_version=dataset.version, clusters=clusters
                )
            )
            await self._advance(sql, dataset)
            await self._delete_old(sql, dataset)
            if on_save is not None:
                await on_save(sql, dataset)
            return await self._end(sql, dataset, plan, last_clustered_at=server_time())

    async def end_unsaved(self, dataset: Dataset, plan: Plan, *, nothing_new: bool) -> SavedRun:
        """End a run that had nothing to save; a user without any novelty counts as clustered now."""
        stamp = {"last_clustered_at": server_time()} if nothing_new else {}
        async with self._queries.engine.begin() as sql:
            await self._admit(sql, dataset, cluster_version=dataset.version - 1)
            return await self._end(sql, dataset, plan, **stamp)

    async def abandon(self, dataset: Dataset, problem: Exception | None) -> None:
        """Free the user without saving anything, unless a later run began.

        After a failure they leave the queue, and are rechecked when they have rested. Without one the attempt
        does not count.
        """
        c = self._users.c
        values: dict[str, Any] = {"attempts": sa.func.greatest(c.attempts - 1, 0), "retry_at": None}
        if problem is not None:
            error = f"{type(problem).__name__}: {describe(problem)}"[:_MAX_ERROR].replace("\x00", "")
            values = {"last_error": error, "enqueued_until": None, "recheck_at": c.retry_at}
        mine = sa.update(self._users).where(c.user_id == dataset.user_id, c.fence == dataset.fence)
        async with self._queries.engine.begin() as sql:
            await sql.execute(mine.values(running_until=None, **values))

    async def _end(self, sql: AsyncConnection, dataset: Dataset, plan: Plan, **stamp: Any) -> SavedRun:
        """Free the user, whose row this transaction has locked, and count what arrived in the meantime.

        If it is enough for another run, the tick that saw it may have found the user enqueued and cleared the
        channels: so the user is rechecked.
        """
        c = self._users.c
        left = sum(span.upto - span.seen for span in await self._spans(sql, dataset.user_id))
        cooldown = interval(plan.cooldown)
        free_at = sa.func.greatest(server_time(), c.last_enqueued_at + cooldown)
        ended = (
            sa.update(self._users)
            .where(c.user_id == dataset.user_id)
            .values(
                pending_insights_count=left,
                enqueued_until=None,
                running_until=None,
                recheck_at=free_at if left >= plan.novelty else None,
                attempts=0,
                retry_at=None,
                last_error=None,
                **stamp,
            )
            .returning(milliseconds_of(c.last_clustered_at))
        )
        return SavedRun(left, (await sql.execute(ended)).scalar_one())

    async def _admit(self, sql: AsyncConnection, dataset: Dataset, **values: Any) -> None:
        """Change the user's row, unless a later run began or saved."""
        c = self._users.c
        changed = await sql.execute(
            sa.update(self._users)
            .where(c.user_id == dataset.user_id, c.fence == dataset.fence)
            .where(c.cluster_version == dataset.version - 1)
            .values(**values)
        )
        if changed.rowcount == 0:
            raise StaleFencingToken(dataset.user_id, dataset.fence)

    async def _advance(self, sql: AsyncConnection, dataset: Dataset) -> None:
        """Advance the high-water marks to what the run has read."""
        table = self._tables.user_cluster_hwm
        rows = [
            {"user_id": dataset.user_id, "channel_id": span.channel_id, "last_seq": span.upto}
            for span in dataset.spans
        ]
        upsert = insert(table).values(rows)
        await sql.execute(
            upsert.on_conflict_do_update(
                index_elements=[table.c.user_id, table.c.channel_id],
                set_={"last_seq": sa.func.greatest(table.c.last_seq, upsert.excluded.last_seq)},
            )
        )

    async def _delete_old(self, sql: AsyncConnection, dataset: Dataset) -> None:
        """Delete old versions of the clusters, and marks of ended subscriptions from before the window."""
        clusters, channels = self._tables.clusters, self._tables.channels
        if self._versions_kept is not None:
            mine = clusters.c.user_id == dataset.user_id
            last = dataset.version - self._versions_kept
            old = sa.select(clusters.c.cluster_version).where(mine, clusters.c.cluster_version <= last)
            oldest = old.order_by(clusters.c.cluster_version).limit(_MAX_DELETED)
            await sql.execute(sa.delete(clusters).where(mine, clusters.c.cluster_version.in_(oldest)))
        marks, s = self._tables.user_cluster_hwm, self._tables.subscriptions
        subscribed = sa.exists().where(s.c.user_id == marks.c.user_id, s.c.channel_id == marks.c.channel_id)
        await sql.execute(
            sa.delete(marks)
            .where(marks.c.user_id == dataset.user_id, marks.c.channel_id == channels.c.channel_id)
            .where(~subscribed, marks.c.last_seq <= self._queries.window_start(channels))
        )
