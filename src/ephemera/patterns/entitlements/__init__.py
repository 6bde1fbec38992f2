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
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from msgspec import inspect

from ephemera._futures import cancel_all, discard
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    REDIS_ERRORS,
    Catalogue,
    Codec,
    CodecName,
    FieldValue,
    Fixed,
    Keyspace,
    RecordCodec,
    Store,
    check_declaration,
    choose_codec,
)
from ephemera.patterns._load_slots import LoadSlots, await_loader, join_load
from ephemera.patterns._stored_records import RecordKind
from ephemera.wire import Arg, Client, Script

__all__ = ["BoundEntitlements", "Entitlements"]

V = TypeVar("V")
Loader: TypeAlias = Callable[..., Awaitable[V | None]]

_MAX_LOAD_TIME = timedelta(seconds=10)

SET_FENCE = Script.load("ephemera.patterns.entitlements", "set_fence")
FILL = Script.load("ephemera.patterns.entitlements", "fill_behind_fence")

_FENCE = b"\x00fence "  # no codec of a fenced keyspace writes or reads a text that begins so


class Entitlements(Generic[V]):
    """The declaration of values read through from SQL: `store[LIMITS]` gives the `BoundEntitlements`.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The pattern of the values' keys.
        value_type: The type of the values.
        lifetime: How long a value is cached after its load.
        kind: "hash" for a record, field by field; "value" for a flag, a number or anything else, as JSON.
        max_concurrent_loads: Loads that may run at once in a process.
        max_load_time: The value of a load that takes longer is not cached.
        purpose: What the values are for, for the generated documentation.
        invalidated_by: What invalidates values.

    """

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
        purpose: str = "What a plan allows",
        invalidated_by: tuple[str, ...] = ("a change of the plan",),
    ) -> None:
        check_declaration(catalogue, pattern, max_load_time=max_load_time)
        _check(pattern, lifetime, max_concurrent_loads, max_load_time)
        declare: Any = {"hash": catalogue.hash, "value": catalogue.value}[kind]
        codec = {"codec": fenced_codec(pattern, value_type)} if kind == "value" else {}
        self.keyspace: Keyspace[Any] = declare(
            pattern,
            value_type,
            lifetime=lifetime,
            role="cache",
            purpose=purpose,
            saves="a SQL join on every request",
            invalidated_by=invalidated_by,
            if_lost="it is loaded again",
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
        self._load_slots = LoadSlots(declaration.max_concurrent_loads)
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
        return await join_load(loading)

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
        async with self._load_slots.slot():
            value = await await_loader(self._cached.keyspace.pattern, load, fields)
        if value is not None and fence:
            with suppress(*REDIS_ERRORS), self._stats.counting_errors:
                stored = await self._fences.fill(key, fence, value)
                self._stats.writes += stored  # not `+= await`, which would read the count before it waits
        return value

    async def _cancel_loads(self) -> None:
        await cancel_all(self._loading.values())


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


def fenced_codec(pattern: str, value_type: Any) -> CodecName | None:
    """Return the codec to declare a fenced value with; None for the usual one."""
    if choose_codec(pattern, value_type).name != "plain":
        return None
    node = inspect.type_info(value_type)
    while isinstance(node, inspect.Metadata):
        node = node.type
    return "json" if isinstance(node, (inspect.StrType, inspect.BytesType)) else None


class FencedRead(NamedTuple, Generic[V]):
    """A cached value, or the fence in its place."""

    value: V | None
    fence: bytes = b""


class Fences(Generic[V]):
    """Fenced fills of one keyspace: a value that was loaded before a change is never stored after it.

    A reader that finds nothing in the cache writes a fence, a random token with a short TTL, into the key
    that the value will have. Then it loads, and stores the value only if its fence is still there. A change
    deletes the key, whatever it contains. So there is no order of events in which an old value returns (trap
    I4):

    - load, change, store: the change has deleted the fence, and the store is refused;
    - change, fence, load, store: what was loaded is what the change made.

    The fence is in the key itself, and not beside it, for three reasons. Any DEL is a change, even one from a
    command line. One key is one cluster slot. And nothing has to outlive anything: a fence that expires or is
    evicted only means that a value is not cached this time. Concurrent loads share the fence; the first one
    stores.

    *Keys.* In a hash the fence is the field `_fence`, in a value it is the text; both read as a miss by any
    other accessor. Where values are plain text or bytes, a fence would be a valid value: `fenced_codec` says
    that those must be declared as JSON.

    *Lifetimes.* A fence lives as long as a load may take, a value as its keyspace says.

    *Atomicity.* Writing a fence and filling are one script each.

    *When Redis is down*, calls raise `ConnectionFailed`, and the caller loads without a cache.
    """

    def __init__(self, keyspace: Keyspace[Any], client: Client, *, longest_load: int) -> None:
        """Take how long a load may take, in milliseconds; what takes longer is not cached."""
        self._call, self._run = client.call, client.run
        self._kind = "hash" if keyspace.kind == "hash" else "value"
        self._read_command = "HGETALL" if keyspace.kind == "hash" else "GET"
        self._codec = cast("Codec[V]", keyspace.codec)
        self._lifetime = keyspace.lifetime.milliseconds or 0
        self._longest_load = longest_load

    async def read_or_fence(self, key: str) -> FencedRead[V]:
        """Return the value of a key, or a fence to load behind: one round trip when there is something."""
        reply = await self._call(self._read_command, key)
        found = self._decoded(reply)
        if found.value is None and not found.fence:
            if reply:  # of another shape: neither a fence nor a value of ours
                await self._call("UNLINK", key)
            fresh = _FENCE + secrets.token_urlsafe(12).encode()
            held = await self._run(SET_FENCE, (key,), (self._kind, fresh, self._longest_load))
            found = self._decoded(held) if held else FencedRead(None, fresh)
        return found

    async def fill(self, key: str, fence: bytes, value: V) -> bool:
        """Store a value that was loaded behind a fence; False when the key has changed since."""
        return bool(
            await self._run(FILL, (key,), (self._kind, fence, self._lifetime, *self._write_command(value)))
        )

    def _write_command(self, value: V) -> list[Arg]:
        if self._kind == "hash":
            return ["HSET", *cast("RecordCodec[Any]", self._codec).encode(cast("Any", value))]
        return ["SET", self._codec.encode(value)]

    def _decoded(self, reply: Any) -> FencedRead[V]:
        if not reply:
            return FencedRead(None)
        if self._kind == "hash":
            stored = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
            fence = stored.get(b"_fence", b"")
            return FencedRead(None, fence) if fence else FencedRead(self._codec.decode(cast("Any", stored)))
        return FencedRead(None, reply) if reply.startswith(_FENCE) else FencedRead(self._codec.decode(reply))
