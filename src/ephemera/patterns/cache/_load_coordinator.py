"""Single-flight loads: one task that all callers in this process share, and one claim across processes.

A caller may share a load that was claimed, or begun, after the caller arrived. A load from before that may
have been invalidated since, so the caller claims for itself, in one round trip: the load is still valid, or
the entry is free, or another process has it. Callers that wait for another process subscribe to the entry's
channel, and check again when it publishes or when the loader's lease ends. A loader renews its lease, so only
a dead one loses its claim this way.

While the server is unreachable there are no claims: callers in this process share a load (with
`LocalCache(when_down="load")`, only one that began after they arrived), and `max_loads` bounds them.

Loads are tasks of their own: a caller that is cancelled leaves the load to the other callers and to the
cache.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ephemera._bounded_cache import BoundedCache
from ephemera._futures import cancel_all, discard
from ephemera.errors import LoadTimeout, StoreClosed
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns._load_slots import LoadSlots, await_loader, join_load
from ephemera.patterns.cache._entry_builder import EntryKeys
from ephemera.patterns.cache._two_level_store import BACKING_OFF, LoadClaim, TwoLevelStore
from ephemera.wire import Subscription

if TYPE_CHECKING:
    from ephemera.patterns.cache import Cache

V = TypeVar("V")

_MAX_BACKOFFS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The option `loading=Loading(...)` of a cache: when and how values are loaded."""

    hard_timeout: timedelta = timedelta(seconds=30)
    """How long a load may take; then its callers get `LoadTimeout`, or the stale value."""
    soft_timeout: timedelta = timedelta(0)
    """How long a caller with a stale value waits for the refreshed one; by default not at all."""
    lease: timedelta = timedelta(seconds=2)
    """How long other processes wait for a loader that died; a live one renews its lease."""
    backoff: timedelta = timedelta(seconds=5)
    """After a failed load, how long the stale value is served before the next attempt."""
    jitter: float = 0.1
    """Up to this part of `fresh` is subtracted at random, so that entries do not expire together."""
    early_refresh: float = 1.0
    """Scales early refreshes of fresh values that are expensive to load (XFetch); 0 for none."""
    max_loads: int = 32
    """Loads that run at once in a process; one that waits for another load does not count."""
    max_refreshes: int = 16
    """Refreshes in the background after which a process begins no other."""


class LoadRequest(NamedTuple, Generic[V]):
    """What a caller asks for: an entry by its key, and how to load it."""

    key: str
    load: Callable[..., Awaitable[V | None]]
    fields: Mapping[str, FieldValue]


class Load(Generic[V]):
    """A load under way in this process, or the wait for another process's load."""

    __slots__ = (
        "callers",
        "is_offline",
        "is_waiting",
        "joinable_by",
        "keys",
        "replaces",
        "request",
        "task",
        "token",
    )

    task: asyncio.Task[V | None]

    def __init__(self, request: LoadRequest[V], keys: EntryKeys, token: str, replaces: str | None) -> None:
        self.request, self.keys, self.token = request, keys, token
        self.replaces = replaces  # the version to replace; None when there was no entry
        self.joinable_by: float = inf  # the last arrival that may share it
        self.callers = 0  # that share its value
        self.is_waiting = False  # for another process: the result is read when that is done
        self.is_offline = False  # without the server


class LoadRunner(Generic[V]):
    """Runs claimed loads of one cache: bounded, timed, their leases renewed, their values stored."""

    def __init__(self, declared: Cache[V], entries: TwoLevelStore[V]) -> None:
        self._declared = declared
        self._entries = entries
        self._pattern = declared.keyspace.pattern
        self._slots = LoadSlots(declared.loading.max_loads)
        self._hard_timeout = declared.loading.hard_timeout.total_seconds()
        self._renew_every = declared.loading.lease.total_seconds() / 3

    async def load_and_fill(self, load: Load[V], began: int, on_begin: Callable[[], None]) -> V | None:
        """Load behind a claim, and store the value if the claim is still valid."""
        renewal = asyncio.create_task(self._keep_renewing(load))
        try:
            value, cost = await self._timed(load.request, on_begin)
            tags = self._declared.tags_of(value, load.request.fields)
            with suppress(*REDIS_ERRORS):  # counted by the store; the caller has its value
                stored = await self._entries.fill(
                    load.keys, load.token, value, cost=cost, tags=tags, began=began
                )
                self._entries.stats.writes += stored
        except BaseException as problem:
            failed = isinstance(problem, Exception)  # not cancelled because the store closes
            with suppress(*REDIS_ERRORS):
                await self._entries.end(load.keys, load.token, failed=failed)
            raise
        finally:
            renewal.cancel()
        return value

    async def load_offline(self, request: LoadRequest[V], on_begin: Callable[[], None]) -> V | None:
        """Load without the server; after a failure a stale local entry backs off."""
        try:
            value, _ = await self._timed(request, on_begin)
        except Exception:
            local = self._entries.local
            entry = None if local is None else local.get(request.key)
            if entry is not None:
                entry.retry_at = monotonic() + self._declared.loading.backoff.total_seconds()
            raise
        return value

    async def _timed(self, request: LoadRequest[V], on_begin: Callable[[], None]) -> tuple[V | None, float]:
        """Return the loaded value and the milliseconds it took."""
        async with self._slots.slot():
            on_begin()
            began = monotonic()
            try:
                async with asyncio.timeout(self._hard_timeout) as limit:
                    value = await await_loader(self._pattern, request.load, request.fields)
            except TimeoutError:
                if limit.expired():
                    raise LoadTimeout(request.key, self._hard_timeout) from None
                raise
            return value, (monotonic() - began) * 1000

    async def _keep_renewing(self, load: Load[V]) -> None:
        while True:
            await asyncio.sleep(self._renew_every)
            with suppress(*REDIS_ERRORS):
                await self._entries.renew(load.keys, load.token)


class LoadCoordinator(Generic[V]):
    """The loads of one cache on one store, by key."""

    def __init__(self, declared: Cache[V], store: Store, entries: TwoLevelStore[V]) -> None:
        self._declared = declared
        self._subscribe = store.client("cache").subscribe
        self._entries = entries
        self._runner: LoadRunner[V] = LoadRunner(declared, entries)
        self._loads: dict[str, Load[V]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refreshes = 0
        self._backoffs: BoundedCache[str, float] = BoundedCache(_MAX_BACKOFFS)  # no refresh before this time
        self._tokens = (f"{secrets.token_hex(8)}-{number:x}" for number in count(1))
        self.arrivals = 0
        """How many callers have arrived."""
        store.before_close(self._cancel_all)

    def is_loading(self, key: str) -> bool:
        """Whether a missing entry is being loaded, so that reading it first is pointless."""
        load = self._loads.get(key)
        return load is not None and load.replaces is None and not load.is_offline

    async def fetch(self, request: LoadRequest[V], arrived: int) -> V | None:
        """Return the value of a missing entry, loaded here or elsewhere after the caller arrived."""
        tagged = self._entries.tags is not None
        while True:
            load = self._loads.get(request.key)
            if load is None or load.is_offline:
                load = self._start(self._new_load(request))
            if load.is_waiting or arrived <= load.joinable_by:
                return await self._join(load)
            mine = self._new_load(request)
            try:
                claim = await self._entries.claim(request.key, mine.keys, mine.token, replace=tagged)
                if claim.found is not None and claim.found.left > 0:
                    await self._give_up(mine, claim)
                    return claim.found.value
            except REDIS_ERRORS:
                return await self.fetch_offline(request, arrived)
            if claim.holder == mine.token:
                return await self._join(self._start(mine, claimed=True))
            if claim.found is not None:
                return claim.found.value
            load = self._loads.get(request.key)
            if load is None or claim.holder != load.token:
                return await self._join(self._start(mine))
            if not tagged:
                return await self._join(load)
            # Invalidating a tag does not end a load, whose value may be too old: claim when it has finished.
            with suppress(Exception):
                await self._join(load)

    def refresh(self, request: LoadRequest[V], version: str) -> asyncio.Task[V | None] | None:
        """Begin to replace an entry of this version; None when others do, or enough is under way."""
        load = self._loads.get(request.key)
        if load is None:
            if self._is_busy() or monotonic() < self._backoffs.get(request.key, 0.0):
                return None
            load = self._start(self._new_load(request, version))
        # A load of an earlier version may be from before an invalidation.
        if load.replaces != version:
            return None
        load.callers += 1  # it may return the value
        return load.task

    async def fetch_offline(self, request: LoadRequest[V], arrived: int) -> V | None:
        """Return the value while the server is unreachable."""
        load = self._loads.get(request.key)
        if load is None or (self._declared.bounds_age_offline and arrived > load.joinable_by):
            load = self._start_offline(self._new_load(request))
        return await self._join(load)

    def refresh_offline(self, request: LoadRequest[V]) -> None:
        """Begin to replace a local entry while the server is unreachable."""
        if request.key not in self._loads and not self._is_busy():
            self._start_offline(self._new_load(request, replaces=""))

    def forget(self, key: str) -> None:
        """Make later callers start a load of their own, after an invalidation."""
        self._loads.pop(key, None)
        self._backoffs.pop(key, None)

    # Starting and sharing loads.

    def _new_load(self, request: LoadRequest[V], replaces: str | None = None) -> Load[V]:
        keys = self._declared.entry_keys(request.key, request.fields)
        return Load(request, keys, next(self._tokens), replaces)

    def _start(self, load: Load[V], *, claimed: bool = False) -> Load[V]:
        return self._spawn(load, self._run_load(load, claimed=claimed))

    def _start_offline(self, load: Load[V]) -> Load[V]:
        return self._spawn(load, self._run_offline(load))

    def _spawn(self, load: Load[V], work: Coroutine[Any, Any, V | None]) -> Load[V]:
        key, refreshes = load.request.key, load.replaces is not None
        self._loads[key] = load
        self._refreshes += refreshes
        load.task = task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[V | None]) -> None:
            self._tasks.discard(task)
            self._refreshes -= refreshes
            if self._loads.get(key) is load:
                del self._loads[key]
            discard(task)  # its callers have the error; there may be none

        task.add_done_callback(done)
        return load

    async def _join(self, load: Load[V]) -> V | None:
        load.callers += 1
        try:
            value = await join_load(load.task)
            return value if load.callers == 1 else self._entries.copied(value)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if load.task.cancelled() and task is not None and not task.cancelling():
                raise StoreClosed(f"{load.request.key!r}: the store was closed while it was loaded") from None
            raise

    # Running a load.

    async def _run_load(self, load: Load[V], *, claimed: bool) -> V | None:
        try:
            if not claimed:
                found = await self._claim_load(load)
                if found is not None:
                    return found[0]
            began = 0 if self._entries.tags is None else await self._entries.tag_time()
        except REDIS_ERRORS:
            return await self._run_offline(load)
        try:
            return await self._runner.load_and_fill(load, began, lambda: self._mark_joinable(load))
        except Exception:
            self._back_off(load.request.key, self._declared.loading.backoff.total_seconds())
            raise

    async def _run_offline(self, load: Load[V]) -> V | None:
        load.is_offline, began = True, monotonic()
        request = load.request
        value = await self._runner.load_offline(request, lambda: self._mark_joinable(load))
        if self._loads.get(request.key) is load:  # this process has not invalidated it since
            tags = self._declared.tags_of(value, request.fields)
            self._entries.put_offline(request.key, value, tags, began)
        return value

    async def _claim_load(self, load: Load[V]) -> tuple[V | None] | None:
        """Claim the load, waiting for another's to end; the value, in a tuple, when there is no need to."""
        async with AsyncExitStack() as stack:
            subscription: Subscription | None = None
            replace, despite_backoff = load.replaces is not None, False
            while True:
                self._mark_joinable(load)
                claim = await self._entries.claim(
                    load.request.key, load.keys, load.token, replace=replace, despite_backoff=despite_backoff
                )
                found, mine = claim.found, claim.holder == load.token
                if found is not None and not (mine and (found.version == load.replaces or found.left <= 0)):
                    await self._give_up(load, claim)
                    return (found.value,)
                if mine:
                    return None
                if not claim.holder:
                    replace = True  # what is stored has expired or cannot be decoded
                elif claim.holder == BACKING_OFF:
                    despite_backoff = True  # only callers that have a value to serve back off
                elif subscription is None:
                    subscription = await stack.enter_async_context(
                        self._subscribe(load.keys.channel, kind="shard")
                    )
                else:
                    load.is_waiting = True
                    await _message_or_timeout(subscription, claim.left)
                    load.is_waiting = False

    async def _give_up(self, load: Load[V], claim: LoadClaim[V]) -> None:
        """Release this load's claim, or back off while another load holds it."""
        if claim.holder == load.token:
            await self._entries.end(load.keys, load.token)
        elif claim.holder:
            self._back_off(load.request.key, claim.left)

    def _mark_joinable(self, load: Load[V]) -> None:
        """Let every caller that has arrived by now share what is read or loaded from here on."""
        load.joinable_by = self.arrivals

    def _is_busy(self) -> bool:
        return self._refreshes >= self._declared.loading.max_refreshes

    def _back_off(self, key: str, seconds: float) -> None:
        """Begin no refresh of this key for a while: another process does, or it has failed."""
        self._backoffs[key] = monotonic() + seconds

    async def _cancel_all(self) -> None:
        await cancel_all(self._tasks)


async def _message_or_timeout(subscription: Subscription, seconds: float) -> None:
    """Return when the entry's channel publishes, or after this many seconds."""
    try:
        async with asyncio.timeout(max(seconds, 0.01)):
            await anext(subscription)
    except TimeoutError:
        return
    except StopAsyncIteration:
        raise StoreClosed("the store was closed while waiting for an entry") from None
