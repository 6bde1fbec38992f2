"""Values, flags and counters: one string per key, written with its TTL in one command where Redis has one.

A value is read by GET, or by GETEX with a sliding lifetime, and written by SET with its TTL. Lifetimes that
SET cannot express (`until`, whose past instants must write nothing, and `windowed`) use the script.

The first addition to a counter creates it and sets its TTL in the same step. An addition to a counter that
has lost its TTL sets a new one, so no counter stays forever by accident.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, Generic, Never, Protocol, TypeVar, cast

from ephemera.errors import InvalidValue
from ephemera.keyspace._accessor import IF_ABSENT, Accessor
from ephemera.keyspace._codec import Codec
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._keyspace import REDIS_ERRORS, Keyspace
from ephemera.keyspace._lifetime import Instant, Until
from ephemera.keyspace._scalars import DECODE_ERRORS
from ephemera.keyspace._template import Fields
from ephemera.wire import Arg, Client, pack_here

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

_BOUND = 2**63  # of a 64-bit integer


class Get(Protocol[V_co]):
    """The signature of `ValueAccessor.get`."""

    def __call__(self, /, *positional: Never, **fields: FieldValue) -> Coroutine[Any, Any, V_co | None]:
        """The value, or None when the key is absent or holds something other than the declared type."""


class _Strings(Accessor):
    """Writes a string by SET with its TTL, where SET can express the lifetime."""

    __slots__ = ("_ttl", "_ttl_if_absent")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        lifetime = keyspace.lifetime
        ttl: tuple[Arg, ...] = () if lifetime.on_put == "none" else ("PX", lifetime.milliseconds or 0)
        self._ttl = ttl if lifetime.on_put in ("none", "renew") else None
        self._ttl_if_absent = None if isinstance(lifetime, Until) else ttl

    async def _set(
        self,
        key: str,
        data: bytes,
        until: Instant | None,
        lifetime: timedelta | None,
        value: object = None,
    ) -> bool:
        if self._ttl is None or until is not None or lifetime is not None:
            return (
                await self._put(key, ("SET", data), until=until, lifetime=lifetime, value=value) is not None
            )
        await self._ask("SET", key, data, *self._ttl)
        self.stats.writes += 1
        self.stats.bytes_written += len(data)
        return True

    async def _set_if_absent(
        self,
        key: str,
        data: bytes,
        until: Instant | None,
        lifetime: timedelta | None,
        value: object = None,
    ) -> bool:
        if self._ttl_if_absent is None or until is not None or lifetime is not None:
            options: Any = {"until": until, "lifetime": lifetime, "value": value, "guard": IF_ABSENT}
            return await self._put(key, ("SET", data), **options) is not None
        stored = await self._ask("SET", key, data, "NX", *self._ttl_if_absent) is not None
        if stored:
            self.stats.writes += 1
            self.stats.bytes_written += len(data)
        return stored


class ValueAccessor(_Strings, Generic[V]):
    """One value per key, encoded by the keyspace's codec."""

    __slots__ = ("_decode", "_encode", "get")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        codec = cast("Codec[V]", keyspace.codec)
        self._encode, self._decode = codec.encode, codec.decode
        self.get: Get[V] = self._make_get(codec)
        """The value, or None when the key is absent or holds something other than the declared type."""

    async def _get(self, /, *positional: Never, **fields: FieldValue) -> V | None:
        """The value, or None when the key is absent or holds something other than the declared type."""
        if positional:
            raise self._unnamed("get")
        key = self._render(fields)
        with self.stats.counting_errors:
            if self._renewal is None:
                data = await self._call("GET", key)
            else:
                data = await self._call("GETEX", key, "PX", self._renewal)
        if data is not None:
            value = self._decode(data)
            if value is not None:
                stats = self.stats
                stats.hits += 1
                stats.bytes_read += len(data)
                return value
        self._missed(data)
        return None

    def _make_get(self, codec: Codec[V]) -> Get[V]:
        """`get`; for the most common sort of keyspace, a version with everything inlined.

        That is: one field in the pattern, and a lifetime that reads do not renew. The calls of `render` and,
        for an enveloped value, `decode`, and the attribute lookups would cost a tenth of the whole read.
        """
        unpack, packing = codec.unpack, self._packing("GET")
        if packing is None or self._renewal is not None:
            return self._get
        field, heads, end, longest = packing
        render, call, send = self._render, self._call, self._send
        stats, decoded, unnamed = self.stats, self._decoded, self._unnamed

        async def get(*positional: Never, **fields: FieldValue) -> V | None:
            if positional:
                raise unnamed("get")
            value: Any = fields.get(field)
            # `with stats.counting_errors` would make this function a fifth slower, and the benchmark row
            # "JSON value read, share of GET" has no room for that.
            try:
                if (
                    value.__class__ is str
                    and value.isalnum()
                    and value.isascii()
                    and len(value) <= longest
                    and len(fields) == 1
                ):
                    data = await send((heads[len(value)] + value + end).encode())
                else:
                    data = await call("GET", render(fields))
            except REDIS_ERRORS:
                stats.errors += 1
                raise
            if unpack is None:
                return decoded(data)
            try:
                found: V = unpack(data).value
            except DECODE_ERRORS:  # absent, compressed, or something else
                return decoded(data)
            stats.hits += 1
            stats.bytes_read += len(data)
            return found

        return get

    async def get_many(self, keys: Iterable[Fields], /) -> list[V | None]:
        """The values of several keys in one round trip, each None as in `get`."""
        rendered = self._render_all(keys)
        if self._renewal is None:
            replies = await self._all(self._call("GET", key) for key in rendered)
        else:
            ttl = self._renewal
            replies = await self._all(self._call("GETEX", key, "PX", ttl) for key in rendered)
        return [self._decoded(data) for data in replies]

    async def put(
        self,
        value: V,
        /,
        *positional: Never,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Store the value with its TTL; False when `until` has passed and nothing was stored.

        `lifetime` is shorter than the declared one, for this write.
        """
        if positional:
            raise self._unnamed("put")
        return await self._set(self._render(fields), self._encode(value), until, lifetime, value)

    async def put_many(
        self,
        items: Iterable[tuple[Fields, V]],
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
    ) -> int:
        """Store several values in one round trip; returns how many were stored.

        `until` is the instant at which they expire, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """
        prepared = [
            (key, self._encode(value), await self._end(until, value, lifetime))
            for key, value in self._render_pairs(items)
        ]
        replies = await self._all(self._send_put(*item) for item in prepared)
        stored = sum(reply is not None for reply in replies)
        self.stats.writes += stored
        return stored

    async def put_if_absent(
        self,
        value: V,
        /,
        *,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Store the value unless the key exists; True when it was stored.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """
        key, data = self._render(fields), self._encode(value)
        return await self._set_if_absent(key, data, until, lifetime, value)

    def _send_put(self, key: str, data: bytes, end: int) -> Awaitable[Any]:
        if self._ttl is None:
            return self._send_write(self.keyspace.lifetime.on_put, key, [("SET", data)], end)
        self.stats.bytes_written += len(data)
        return self._call("SET", key, data, *(("PX", end) if self._ttl else ()))

    def _decoded(self, data: bytes | None) -> V | None:
        value = None if data is None else self._decode(data)
        if data is None or value is None:
            self._missed(data)
            return None
        self.stats.hits += 1
        self.stats.bytes_read += len(data)
        return value

    def _missed(self, data: bytes | None) -> None:
        self.stats.misses += 1
        if data is not None:
            self.stats.undecodable += 1
            self.stats.bytes_read += len(data)


def blocking_get(accessor: ValueAccessor[V], exchange: Callable[[bytes], Any]) -> Callable[..., V | None]:
    """`get` as a plain function, given one that sends a packed command and blocks for its reply.

    A coroutine and an awaitable reply take another 1.2 microseconds, in which no other thread can send. They
    would be a quarter of the time of a read by eight threads: row "sync: 8 threads, store[X].get".
    """
    stats, decoded, unnamed = accessor.stats, accessor._decoded, accessor._unnamed
    command = ("GET",) if accessor._renewal is None else ("GETEX", "PX", accessor._renewal)
    ask = accessor._reader(exchange, lambda *words: exchange(pack_here(words)), *command)

    def get(*positional: Never, **fields: FieldValue) -> V | None:
        if positional:
            raise unnamed("get")
        try:
            data = ask(fields)
        except REDIS_ERRORS:
            stats.errors += 1
            raise
        return decoded(data)

    return get


class FlagAccessor(_Strings):
    """A key that is set or not; it carries no value."""

    __slots__ = ()

    async def set(
        self,
        /,
        *positional: Never,
        until: Instant | None = None,
        lifetime: timedelta | None = None,
        **fields: FieldValue,
    ) -> bool:
        """Set the flag with its TTL; False when `until` has passed and nothing changed.

        `lifetime` is shorter than the declared one, for this write.
        """
        if positional:
            raise self._unnamed("set")
        return await self._set(self._render(fields), b"1", until, lifetime)

    async def set_if_absent(
        self, /, *, until: Instant | None = None, lifetime: timedelta | None = None, **fields: FieldValue
    ) -> bool:
        """Set the flag unless it is set; True when this call set it.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        `lifetime` is shorter than the declared one, for this write.
        """
        return await self._set_if_absent(self._render(fields), b"1", until, lifetime)

    async def clear(self, /, **fields: FieldValue) -> bool:
        """Clear the flag; True when it was set."""
        return await self.delete(**fields)

    async def is_set(self, /, *positional: Never, **fields: FieldValue) -> bool:
        """Whether the flag is set."""
        if positional:
            raise self._unnamed("is_set")
        return (await self.are_set([fields]))[0]

    async def are_set(self, keys: Iterable[Fields], /) -> list[bool]:
        """Whether each of several flags is set, in one round trip."""
        rendered = self._render_all(keys)
        replies = await self._all(self._check(key) for key in rendered)
        hits = sum(replies)
        self.stats.hits += hits
        self.stats.misses += len(replies) - hits
        return [bool(reply) for reply in replies]

    def _check(self, key: str) -> Awaitable[Any]:
        # PEXPIRE replies whether the key exists: with a sliding lifetime it checks and renews in one command.
        if self._renewal is None:
            return self._call("EXISTS", key)
        return self._call("PEXPIRE", key, self._renewal)


class CounterAccessor(Accessor):
    """One whole number per key, which any number of callers add to at once."""

    __slots__ = ()

    async def get(self, /, *positional: Never, **fields: FieldValue) -> int:
        """The count; 0 when the key is absent."""
        if positional:
            raise self._unnamed("get")
        return (await self.get_many([fields]))[0]

    async def get_many(self, keys: Iterable[Fields], /) -> list[int]:
        """Several counts in one round trip."""
        rendered = self._render_all(keys)
        return [self._counted(data) for data in await self._read_all("GET", rendered)]

    async def add(self, by: int = 1, /, *, until: Instant | None = None, **fields: FieldValue) -> int:
        """Add to the count and return it; 0 when `until` has passed and nothing was counted."""
        replies = await self._change(self._render(fields), ("INCRBY", self._whole(by)), until=until)
        return replies[0] if replies else 0

    async def add_many(
        self, additions: Iterable[tuple[Fields, int]], /, *, until: Instant | None = None
    ) -> list[int]:
        """Add to several counts in one round trip; each as in `add`.

        `until` is the instant at which they expire, where the keyspace has an `until` lifetime.
        """
        rule, end = self.keyspace.lifetime.on_change, await self._end(until)
        rendered = [(key, self._whole(by)) for key, by in self._render_pairs(additions)]
        replies = await self._all(self._send_write(rule, key, [("INCRBY", by)], end) for key, by in rendered)
        self.stats.writes += sum(reply is not None for reply in replies)
        return [reply[0] if reply else 0 for reply in replies]

    def _whole(self, by: int) -> int:
        if type(by) is not int or not -_BOUND <= by < _BOUND:
            raise InvalidValue(self.keyspace.pattern, "whole numbers of 64 bits", repr(by)[:40])
        return by

    def _counted(self, data: bytes | None) -> int:
        try:
            count = 0 if data is None else int(data)
        except DECODE_ERRORS:
            self.stats.undecodable += 1
            data, count = None, 0
        if data is None:
            self.stats.misses += 1
        else:
            self.stats.hits += 1
            self.stats.bytes_read += len(data)
        return count
