"""Lists: items in the order they were pushed, taken from the front.

`push` appends at the back; with `max_length` it drops the oldest in the same step, so the list always holds
the newest. `pop` removes what it returns: an item whose taker dies is lost. Work that must not be lost
belongs in a stream or a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ephemera.errors import Unreadable
from ephemera.keyspace.access import Access, in_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ephemera.keyspace.access import Command
    from ephemera.keyspace.codec import Codec
    from ephemera.keyspace.field_values import FieldValue
    from ephemera.keyspace.lifetime import Instant
    from ephemera.keyspace.space import Space
    from ephemera.wire import Client

V = TypeVar("V")


class ListAccess(Access, Generic[V]):
    """Items of one type in order, under each key."""

    __slots__ = ("_decode", "_encode", "_trim")

    def __init__(self, space: Space[Any], client: Client) -> None:
        super().__init__(space, client)
        codec = cast("Codec[V]", space.codec)
        self._encode, self._decode = codec.encode, codec.decode
        longest = space.max_length
        self._trim: tuple[Command, ...] = () if longest is None else (("LTRIM", -longest, -1),)

    async def push(self, /, *items: V, until: Instant | None = None, **fields: FieldValue) -> int:
        """Append items, dropping the oldest above `max_length`; the length, 0 if `until` passed."""
        pushes = in_chunks("RPUSH", [self._encode(item) for item in items])
        key = self._render(fields)
        replies = await self._change(key, *pushes, *self._trim, until=until)
        if not replies or not pushes:
            return 0
        length: int = replies[len(pushes) - 1]
        return min(length, self.space.max_length or length)

    async def pop(self, /, **fields: FieldValue) -> V | None:
        """Remove and return the oldest item, or None when there is none that can be read."""
        return next(iter(await self.pop_many(1, **fields)), None)

    async def pop_many(self, count: int, /, **fields: FieldValue) -> list[V]:
        """Remove and return up to `count` of the oldest items, oldest first.

        In a space of role `queue`, items that cannot be read are put back, and `Unreadable` is raised.
        """
        key = self._render(fields)
        replies = await self._change_existing(key, ("LPOP", count))
        stored: list[bytes] = (replies and replies[0]) or []
        if self.space.role == "queue" and any(self._decode(data) is None for data in stored):
            await self._change_existing(key, *in_chunks("LPUSH", stored[::-1]))
            self.stats.errors += 1
            raise Unreadable(self.space.pattern, key)
        return self._readable(stored)

    async def range(self, start: int = 0, stop: int = -1, /, **fields: FieldValue) -> list[V]:
        """Items by position, oldest first, `stop` included; -1 is the newest."""
        return self._readable(await self._read("LRANGE", self._render(fields), start, stop))

    async def size(self, /, **fields: FieldValue) -> int:
        """How many items there are."""
        return int(await self._read("LLEN", self._render(fields)))

    def _readable(self, stored: Sequence[bytes]) -> list[V]:
        decoded = [self._decode(data) for data in stored]
        self.stats.bytes_read += sum(map(len, stored))
        items = [item for item in decoded if item is not None]
        self.stats.undecodable += len(decoded) - len(items)
        if items:
            self.stats.hits += 1
        else:
            self.stats.misses += 1
        return items
