"""Entitlements: what a plan allows and which features are on, read through SQL, as new as the last change.

    LIMITS = Entitlements(catalogue, "plan_limits:{organization_id}", PlanLimits, lifetime=fixed(seconds=300))
    FEATURE = Entitlements(
        catalogue, "feature:{plan_id}:{feature}", bool, lifetime=fixed(seconds=60), kind="value"
    )
    limits = await store[LIMITS].get(load_limits, organization_id="o1")
    await store[LIMITS].drop(organization_id="o1")          # after the change was committed

Keys: one hash or value for each set of the pattern's fields; while it is being loaded, a fence in its place
(`fences`).
Lifetimes: as declared, from the load. Dropping ends it at once.
Atomic: a fill succeeds only if nothing was dropped since before its load began, so a `get` that begins
after `drop` has returned never sees what was true before, in any process. Callers of one process who miss
together load once.
Down or hung: every `get` loads, still once for all who ask for the same at the same time, and at most
`most_loads` at once, so SQL is not stormed. `drop` raises `ConnectionFailed`: what is cached then lasts
until its life ends, so repeat it. Evicted or lost: loaded again. A loader's error is its caller's; what it
finds not to exist (None) is not cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

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

V = TypeVar("V")


class Entitlements(Generic[V]):
    """The declaration of what is read through SQL: `store[LIMITS]` gives the `Entitled` of a store.

    `kind` is "hash" for a Struct, field by field, or "value" for a flag, a number or anything else, as JSON.
    A load that takes longer than `longest_load` milliseconds is not cached.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        value_type: type[V],
        *,
        lifetime: Fixed,
        kind: RecordKind = "hash",
        most_loads: int = 8,
        longest_load: int = 10_000,
        role: Role = "cache",
        purpose: str = "What a plan allows",
        saves: str = "a SQL join on every request",
        invalidated_by: tuple[str, ...] = ("a change of the plan",),
        if_lost: str = "it is loaded again",
    ) -> None:
        check_declaration(catalogue, pattern)
        _check(pattern, lifetime, most_loads, longest_load)
        declare: Any = {"hash": catalogue.hash, "value": catalogue.value}[kind]
        form = {"codec": fenced_codec(pattern, value_type)} if kind == "value" else {}
        self.space: Keyspace[Any] = declare(
            pattern,
            value_type,
            lifetime=lifetime,
            role=role,
            purpose=purpose,
            saves=saves,
            invalidated_by=invalidated_by,
            if_lost=if_lost,
            **form,
        )
        self.most_loads = most_loads
        self.longest_load = longest_load

    def bind(self, store: Store) -> Entitled[V]:
        """The entitlements of a store."""
        return Entitled(self, store)

    def __repr__(self) -> str:
        return f"<Entitlements {self.space.pattern!r} of {self.space.catalogue}>"


class Entitled(Generic[V]):
    """The entitlements of one store: what `store[LIMITS]` gives."""

    def __init__(self, declared: Entitlements[V], store: Store) -> None:
        self._cached = store[declared.space]
        self._stats = self._cached.stats
        self._fences: Fences[V] = Fences(
            declared.space, store.client(declared.space.role), longest_load=declared.longest_load
        )
        self._loading: dict[tuple[str, bytes], asyncio.Task[V | None]] = {}
        self._room = asyncio.Semaphore(declared.most_loads)
        store.before_close(self._finish)

    async def get(self, load: Callable[..., Awaitable[V | None]], /, **fields: FieldValue) -> V | None:
        """The value, from the cache or by `await load(**fields)`; None when the loader finds none."""
        key = self._cached.key(**fields)
        try:
            value, fence = await self._fences.read_or_fence(key)
        except REDIS_ERRORS:
            self._stats.errors += 1
            value, fence = None, b""
        if value is not None:
            self._stats.hits += 1
            return value
        self._stats.misses += 1
        # Only who looked after the last change sees this fence, so to share its load is to be as new.
        loading = self._loading.get((key, fence))
        if loading is None:
            loading = self._start(key, fence, load, fields)
        return await asyncio.shield(loading)

    async def drop(self, /, **fields: FieldValue) -> None:
        """Forget the value, after its change was committed; loads under way will not be stored."""
        self._loading.pop((self._cached.key(**fields), b""), None)
        await self._cached.delete(**fields)

    def _start(
        self, key: str, fence: bytes, load: Callable[..., Awaitable[V | None]], fields: dict[str, FieldValue]
    ) -> asyncio.Task[V | None]:
        place = (key, fence)
        task = asyncio.create_task(self._load(key, fence, load, fields))
        self._loading[place] = task

        def done(task: asyncio.Task[V | None]) -> None:
            if self._loading.get(place) is task:
                del self._loading[place]
            if not task.cancelled():
                task.exception()  # whoever waited has it; nobody may

        task.add_done_callback(done)
        return task

    async def _load(
        self, key: str, fence: bytes, load: Callable[..., Awaitable[V | None]], fields: dict[str, FieldValue]
    ) -> V | None:
        async with self._room:
            value = await load(**fields)
        if value is not None and fence:
            try:
                self._stats.writes += await self._fences.fill(key, fence, value)
            except REDIS_ERRORS:
                self._stats.errors += 1
        return value

    async def _finish(self) -> None:
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)


def _check(pattern: str, lifetime: Any, most_loads: int, longest_load: int) -> None:
    if not isinstance(lifetime, Fixed):
        raise InvalidDeclaration(pattern, f"a copy cannot live {lifetime}", "use fixed(seconds=300)")
    if most_loads < 1 or longest_load < 1:
        raise InvalidDeclaration(
            pattern, f"most_loads={most_loads}, longest_load={longest_load}", "give positive numbers"
        )
