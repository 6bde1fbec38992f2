"""Entitlements: plan limits and feature flags, read through from SQL and invalidated without races.

    LIMITS = Entitlements(catalogue, "plan_limits:{organization_id}", PlanLimits, lifetime=fixed(seconds=300))
    FEATURE = Entitlements(
        catalogue, "feature:{plan_id}:{feature}", bool, lifetime=fixed(seconds=60), kind="value"
    )
    limits = await store[LIMITS].get(load_limits, organization_id="o1")
    await store[LIMITS].invalidate(organization_id="o1")    # after the change was committed

*Keys.* One hash or value for each combination of the pattern's fields; while it is being loaded, a fence in
its place.

*Lifetimes.* As declared, from the load. Invalidation ends it at once.

*Atomicity.* A fill succeeds only if nothing was invalidated since before its load began, so a `get` that
begins after `invalidate` has returned never sees the old value, in any process. Concurrent misses in one
process share one load.

*When Redis is down.* Every `get` loads, still shared by concurrent callers, and at most
`max_concurrent_loads` at once, so SQL is not overloaded. `invalidate` raises `ConnectionFailed`: the cached
value then lasts until its lifetime ends, so repeat it. Evicted or lost values are loaded again. A loader's
error is raised to its callers; None, for a value that does not exist, is not cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from ephemera._futures import discard
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    REDIS_ERRORS,
    Catalogue,
    FieldValue,
    Fixed,
    Keyspace,
    Role,
    Store,
    check_declaration,
)
from ephemera.patterns._fences import Fences, fenced_codec
from ephemera.patterns._stored_records import RecordKind

__all__ = ["BoundEntitlements", "Entitlements"]

V = TypeVar("V")
Loader: TypeAlias = Callable[..., Awaitable[V | None]]

_MAX_LOAD_TIME = timedelta(seconds=10)


class Entitlements(Generic[V]):
    """The declaration of values read through from SQL: `store[LIMITS]` gives the `BoundEntitlements`."""

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        value_type: type[V],
        *,
        lifetime: Fixed,
        kind: RecordKind = "hash",
        max_concurrent_loads: int = 8,
        max_load_time: timedelta = _MAX_LOAD_TIME,
        role: Role = "cache",
        purpose: str = "What a plan allows",
        saves: str = "a SQL join on every request",
        invalidated_by: tuple[str, ...] = ("a change of the plan",),
        if_lost: str = "it is loaded again",
    ) -> None:
        """Declare the keys of the cached values.

        `kind` is "hash" for a Struct, field by field, or "value" for a flag, a number or anything else, as
        JSON. `max_concurrent_loads` is how many loads may run at once in a process. The value of a load that
        takes longer than `max_load_time` is not cached.
        """
        check_declaration(catalogue, pattern, max_load_time=max_load_time)
        _check(pattern, lifetime, max_concurrent_loads, max_load_time)
        declare: Any = {"hash": catalogue.hash, "value": catalogue.value}[kind]
        codec = {"codec": fenced_codec(pattern, value_type)} if kind == "value" else {}
        self.keyspace: Keyspace[Any] = declare(
            pattern,
            value_type,
            lifetime=lifetime,
            role=role,
            purpose=purpose,
            saves=saves,
            invalidated_by=invalidated_by,
            if_lost=if_lost,
            **codec,
        )
        self.max_concurrent_loads = max_concurrent_loads
        self.max_load_time = max_load_time

    def bind(self, store: Store) -> BoundEntitlements[V]:
        """Bind the entitlements to a store."""
        return BoundEntitlements(self, store)

    def __repr__(self) -> str:
        return f"<Entitlements {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


class BoundEntitlements(Generic[V]):
    """The entitlements of one store: what `store[LIMITS]` gives."""

    def __init__(self, declaration: Entitlements[V], store: Store) -> None:
        keyspace = declaration.keyspace
        self._cached = store[keyspace]
        self._stats = self._cached.stats
        self._fences: Fences[V] = Fences(
            keyspace,
            store.client(keyspace.role),
            longest_load=declaration.max_load_time // timedelta(milliseconds=1),
        )
        self._loading: dict[tuple[str, bytes], asyncio.Task[V | None]] = {}
        self._load_slots = asyncio.Semaphore(declaration.max_concurrent_loads)
        store.before_close(self._cancel_loads)

    async def get(self, load: Loader[V], /, **fields: FieldValue) -> V | None:
        """Return the value, from the cache or by `await load(**fields)`; None when there is none."""
        key = self._cached.key(**fields)
        try:
            with self._stats.counting_errors:
                value, fence = await self._fences.read_or_fence(key)
        except REDIS_ERRORS:
            value, fence = None, b""
        if value is not None:
            self._stats.hits += 1
            return value
        self._stats.misses += 1
        # Only callers that read after the last change see this fence, so they may share its load.
        loading = self._loading.get((key, fence))
        if loading is None:
            loading = self._start(key, fence, load, fields)
        return await asyncio.shield(loading)

    async def invalidate(self, /, **fields: FieldValue) -> None:
        """Remove the value after its change was committed; loads in progress will not be stored."""
        self._loading.pop((self._cached.key(**fields), b""), None)
        await self._cached.delete(**fields)

    def _start(
        self, key: str, fence: bytes, load: Loader[V], fields: dict[str, FieldValue]
    ) -> asyncio.Task[V | None]:
        name = (key, fence)
        task = self._loading[name] = asyncio.create_task(self._load(key, fence, load, fields))

        def done(task: asyncio.Task[V | None]) -> None:
            if self._loading.get(name) is task:
                del self._loading[name]
            discard(task)  # its callers have the exception, if any is left

        task.add_done_callback(done)
        return task

    async def _load(self, key: str, fence: bytes, load: Loader[V], fields: dict[str, FieldValue]) -> V | None:
        async with self._load_slots:
            value = await load(**fields)
        if value is not None and fence:
            with suppress(*REDIS_ERRORS), self._stats.counting_errors:
                self._stats.writes += await self._fences.fill(key, fence, value)
        return value

    async def _cancel_loads(self) -> None:
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)


def _check(pattern: str, lifetime: Any, max_concurrent_loads: int, max_load_time: timedelta) -> None:
    if not isinstance(lifetime, Fixed):
        raise InvalidDeclaration(
            pattern, f"a cached value cannot have the lifetime {lifetime}", "use fixed(seconds=300)"
        )
    if max_concurrent_loads < 1 or max_load_time <= timedelta(0):
        raise InvalidDeclaration(
            pattern,
            f"max_concurrent_loads={max_concurrent_loads}, max_load_time={max_load_time}",
            "give positive values",
        )
