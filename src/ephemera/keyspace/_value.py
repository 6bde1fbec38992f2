"""Values and flags: one string each, written with its lifetime in one command where the server has one.

A value is read by GET, or by GETEX in a sliding space, and written by SET with its life; only lifetimes
that SET cannot express (`until`, whose past instants must write nothing, and `windowed`) take the script.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from ephemera.keyspace._accessor import IF_ABSENT, Accessor
from ephemera.keyspace._field_values import FieldValue
from ephemera.keyspace._keyspace import REDIS_ERRORS, Keyspace
from ephemera.keyspace._lifetime import Instant, Until
from ephemera.keyspace._scalars import DECODE_ERRORS
from ephemera.keyspace._template import Fields
from ephemera.wire import Arg, Client

if TYPE_CHECKING:
    from ephemera.keyspace._codec import Codec

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class Get(Protocol[V_co]):
    """How a value is read."""

    def __call__(self, /, **fields: FieldValue) -> Coroutine[Any, Any, V_co | None]:
        """The value, or None: not there, or not one of this type and shape."""


class _Strings(Accessor):
    """What both kinds have: a string, written by SET with its life where SET can give it."""

    __slots__ = ("_life", "_life_if_absent")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        lifetime = keyspace.lifetime
        life: tuple[Arg, ...] = () if lifetime.on_put == "none" else ("PX", lifetime.milliseconds or 0)
        self._life = life if lifetime.on_put in ("none", "renew") else None
        self._life_if_absent = None if isinstance(lifetime, Until) else life

    async def _set(self, key: str, data: bytes, until: Instant | None, value: object = None) -> bool:
        if self._life is None or until is not None:
            return await self._put(key, ("SET", data), until=until, value=value) is not None
        await self._ask("SET", key, data, *self._life)
        self.stats.writes += 1
        self.stats.bytes_written += len(data)
        return True

    async def _set_if_absent(
        self, key: str, data: bytes, until: Instant | None, value: object = None
    ) -> bool:
        if self._life_if_absent is None or until is not None:
            write = ("SET", data)
            return await self._put(key, write, until=until, value=value, guard=IF_ABSENT) is not None
        stored = await self._ask("SET", key, data, "NX", *self._life_if_absent) is not None
        if stored:
            self.stats.writes += 1
            self.stats.bytes_written += len(data)
        return stored


class ValueAccessor(_Strings, Generic[V]):
    """One value a key, through the space's codec."""

    __slots__ = ("_decode", "_encode", "get")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        codec = cast("Codec[V]", keyspace.codec)
        self._encode, self._decode = codec.encode, codec.decode
        self.get: Get[V] = self._getting(codec)
        """The value, or None: not there, or not one of this type and shape."""

    async def _get(self, /, **fields: FieldValue) -> V | None:
        key = self._render(fields)
        try:
            if self._renewal is None:
                data = await self._call("GET", key)
            else:
                data = await self._call("GETEX", key, "PX", self._renewal)
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise
        if data is not None:
            value = self._decode(data)
            if value is not None:
                stats = self.stats
                stats.hits += 1
                stats.bytes_read += len(data)
                return value
        self._missed(data)
        return None

    def _getting(self, codec: Codec[V]) -> Get[V]:
        """`get`, and for the commonest sort of space the same written out.

        That is: one field in the pattern, a packed value, a life that reading does not renew. The calls of
        `render` and `decode` and the looks at `self` would cost a tenth of the whole read.
        """
        unpack, packing = codec.unpack, self._packing("GET")
        if packing is None or unpack is None or self._renewal is not None:
            return self._get
        field, heads, end, longest = packing
        render, call, send = self._render, self._call, self._send
        stats, decoded = self.stats, self._decoded

        async def get(**fields: FieldValue) -> V | None:
            value: Any = fields.get(field)
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
            try:
                found: V = unpack(data).value
            except DECODE_ERRORS:  # nothing, compressed, or something else
                return decoded(data)
            stats.hits += 1
            stats.bytes_read += len(data)
            return found

        return get

    async def get_many(self, keys: Iterable[Fields], /) -> list[V | None]:
        """The values of several keys in one trip, each None as in `get`."""
        rendered = self._rendered(keys)
        if self._renewal is None:
            replies = await self._all(self._call("GET", key) for key in rendered)
        else:
            life = self._renewal
            replies = await self._all(self._call("GETEX", key, "PX", life) for key in rendered)
        return [self._decoded(data) for data in replies]

    async def put(self, value: V, /, *, until: Instant | None = None, **fields: FieldValue) -> bool:
        """Store the value for its lifetime; False when `until` has passed and nothing was stored."""
        return await self._set(self._render(fields), self._encode(value), until, value)

    async def put_many(self, items: Iterable[tuple[Fields, V]], /, *, until: Instant | None = None) -> int:
        """Store several values in one trip; how many were stored."""
        prepared = [
            (key, self._encode(value), await self._end(until, value)) for key, value in self._paired(items)
        ]
        replies = await self._all(self._putting(*item) for item in prepared)
        stored = sum(reply is not None for reply in replies)
        self.stats.writes += stored
        return stored

    async def put_if_absent(self, value: V, /, *, until: Instant | None = None, **fields: FieldValue) -> bool:
        """Store the value unless the key is there; whether it was stored."""
        return await self._set_if_absent(self._render(fields), self._encode(value), until, value)

    def _putting(self, key: str, data: bytes, end: int) -> Awaitable[Any]:
        if self._life is None:
            return self._writing(self.keyspace.lifetime.on_put, key, [("SET", data)], end)
        self.stats.bytes_written += len(data)
        return self._call("SET", key, data, *self._life)

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


class FlagAccessor(_Strings):
    """A key that is set or not; it carries no value."""

    __slots__ = ()

    async def set(self, /, *, until: Instant | None = None, **fields: FieldValue) -> bool:
        """Set the flag for its lifetime; False when `until` has passed and nothing changed."""
        return await self._set(self._render(fields), b"1", until)

    async def set_if_absent(self, /, *, until: Instant | None = None, **fields: FieldValue) -> bool:
        """Set the flag unless it is set; True when this call set it."""
        return await self._set_if_absent(self._render(fields), b"1", until)

    async def clear(self, /, **fields: FieldValue) -> bool:
        """Clear the flag; True when it was set."""
        return await self.delete(**fields)

    async def is_set(self, /, **fields: FieldValue) -> bool:
        """Whether the flag is set."""
        return (await self.are_set([fields]))[0]

    async def are_set(self, keys: Iterable[Fields], /) -> list[bool]:
        """Whether each of several flags is set, in one round trip."""
        rendered = self._rendered(keys)
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
