"""A worker's run on one user: lock, recount, build, save; what was read is what is marked as seen.

1. `lock:user:{u}` is taken, with a fence. While Redis is away, the user's row stands for the lock.
2. The run begins in SQL: the fence is written to the user's row, if it is larger than the one there, and
   the bounds of the dataset are read. From here on SQL refuses every run that began before.
3. The application builds clusters from the dataset.
4. One transaction saves them: refused unless the row still has this fence and the version that the run
   began with. The high-water marks go to the seqs of the dataset, not to what has come meanwhile; what has
   is counted, and if it is enough, the user is looked at again.
5. The copies in Redis follow. If that fails they err on the side of more novelty, which heals by itself.

A worker killed before the commit has changed nothing but the fence; the user is looked at again when the
mark ends. One killed after it has lost nothing. No novelty is saved twice: the version forbids it. A run that
fails, or loses its lock, frees the user's row.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from ephemera.errors import ConnectionFailed, EphemeraError, LockLost, StaleFencingToken
from ephemera.patterns.locks import BoundLocks
from ephemera.patterns.planner._plans import Facts, trigger
from ephemera.patterns.planner._working_set import Copies

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from ephemera.patterns.planner._declaration import Planner
    from ephemera.patterns.planner._runs import Runs

_log = logging.getLogger("ephemera.planner")
_PATIENCE = 5.0  # seconds to tell SQL that a run is given up

Ending: TypeAlias = Literal["rebuilt", "nothing new", "not due", "busy", "overtaken", "unknown user"]
"""How a run ended; only `rebuilt` has changed the user's clusters."""


class Span(NamedTuple):
    """A channel's part of a dataset: the insights with `after < seq <= upto`."""

    channel_id: str
    after: int  # the window's start, or the high-water mark where that is lower
    upto: int
    seen: int  # the high-water mark: what is above was never clustered for this user


class Dataset(NamedTuple):
    """What a run is to cluster."""

    user_id: str
    plan: str
    pending: int  # insights never clustered for this user
    version: int  # what these clusters will be
    fence: int
    spans: tuple[Span, ...]


class Run(msgspec.Struct):
    """What came of a run."""

    user_id: str
    ending: Ending
    version: int = 0  # the user's version after it
    pending: int = 0  # what there was to do
    left: int = 0  # what came meanwhile
    seconds: float = 0.0


Build: TypeAlias = Callable[[Dataset], Awaitable[Any]]
"""Makes the clusters of a dataset: what the column `clusters` takes, JSON unless it is another's."""
Invalidate: TypeAlias = Callable[[str, int], Awaitable[None]]
"""Is told the user and the new version after the commit."""
AlsoSave: TypeAlias = Callable[["AsyncConnection", Dataset], Awaitable[None]]
"""Writes more in the transaction that saves the clusters."""


class Working:
    """The worker's side of a planner."""

    def __init__(self, declared: Planner, locks: BoundLocks, copies: Copies, runs: Runs) -> None:
        self._declared = declared
        self._locks = locks
        self._copies = copies
        self._runs = runs

    async def rebuild(
        self,
        user: str,
        build: Build,
        *,
        invalidate: Invalidate | None = None,
        also_save: AlsoSave | None = None,
        even_if_not_due: bool = False,
    ) -> Run:
        """One run; see `BoundPlanner.rebuild`."""
        began = time.perf_counter()
        run = Run(user, "busy")
        try:
            async with AsyncExitStack() as held, asyncio.timeout(self._declared.longest_run.total_seconds()):
                fence = await self._lock(user, held)
                if fence is not None:
                    await self._work(run, fence, build, invalidate, also_save, even_if_not_due)
        except (LockLost, StaleFencingToken):
            if run.ending != "rebuilt":
                run.ending = "overtaken"
        run.seconds = time.perf_counter() - began
        return run

    async def _lock(self, user: str, held: AsyncExitStack) -> int | None:
        """The fence of the user's lock; 0 when SQL is to give one; None when another has the lock."""
        try:
            lock = await held.enter_async_context(self._locks.try_hold(user_id=user))
        except ConnectionFailed:
            return 0
        return None if lock is None else lock.fence

    async def _work(
        self,
        run: Run,
        fence: int,
        build: Build,
        invalidate: Invalidate | None,
        also_save: AlsoSave | None,
        even_if_not_due: bool,
    ) -> None:
        user = run.user_id
        begun = await self._runs.begin(user, fence)
        if isinstance(begun, str):
            run.ending = begun
            return
        dataset, clustered_at, now = begun
        run.version, run.pending = dataset.version - 1, dataset.pending
        plan = self._declared.plan(dataset.plan)
        due = trigger(plan, Facts(dataset.plan, dataset.pending, clustered_at), now)
        if dataset.pending == 0 or not (due or even_if_not_due):
            run.ending = "not due" if dataset.pending else "nothing new"
            run.left = (await self._runs.leave(dataset, plan, nothing_new=dataset.pending == 0)).left
            await self._tell(self._copies.drop(user))
            return
        try:
            clusters = await build(dataset)
            saved = await self._runs.save(dataset, plan, clusters, also_save)
        except BaseException:
            await self._give_up(dataset)
            raise
        run.ending, run.version, run.left = "rebuilt", dataset.version, saved.left
        seqs = {span.channel_id: span.upto for span in dataset.spans if span.upto > span.seen}
        await self._tell(
            self._copies.clustered(
                user,
                seqs,
                cluster_version=dataset.version,
                last_clustered_at=saved.at,
                pending=saved.left,
            )
        )
        if invalidate is not None:
            await invalidate(user, dataset.version)

    async def _give_up(self, dataset: Dataset) -> None:
        """Let others have the user at once, where SQL can be told; else when the run's time is over."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._runs.give_up(dataset)
        except Exception:  # what ended the run is what matters
            _log.info("the user %s is free when the run's time is over", dataset.user_id)

    async def _tell(self, telling: Awaitable[None]) -> None:
        """Have Redis follow SQL; where it cannot, a later recount drops what it has."""
        try:
            await telling
        except LockLost:
            raise
        except EphemeraError:
            return
