"""Lists: items are pushed at the back and popped from the front.

`push` appends; with `max_length` it drops the oldest items in the same step, so the list always holds the
newest. `pop` removes what it returns: an item whose consumer dies is lost. Work that must not be lost belongs
in a stream or a job. In a keyspace of role `queue` items are read first and removed only when all of them can
be decoded: two round trips, and one more whenever another consumer was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

from ephemera.errors import UndecodableItems
from ephemera.keyspace._accessor import Accessor, Command, in_chunks
from ephemera.keyspace._codec import Codec
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._keyspace import Keyspace
from ephemera.keyspace._lifetime import Instant
from ephemera.wire import Arg, Client, Script

V = TypeVar("V")

TAKE = Script.load("ephemera.keyspace", "take")


class ListAccessor(Accessor, Generic[V]):
    """Items of one type, in order."""

    __slots__ = ("_decode", "_encode", "_trim")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        codec = cast("Codec[V]", keyspace.codec)
        self._encode, self._decode = codec.encode, codec.decode
        longest = keyspace.max_length
        self._trim: tuple[Command, ...] = () if longest is None else (("LTRIM", -longest, -1),)

    async def push(self, /, *items: V, until: Instant | None = None, **fields: FieldValue) -> int:
        """Append items and drop the oldest above `max_length`; the length, 0 when `until` has passed."""
        pushes = in_chunks("RPUSH", [self._encode(item) for item in items])
        key = self._render(fields)
        replies = await self._change(key, *pushes, *self._trim, until=until)
        if not replies or not pushes:
            return 0
        length: int = replies[len(pushes) - 1]
        return min(length, self.keyspace.max_length or length)

    async def pop(self, /, **fields: FieldValue) -> V | None:
        """Remove and return the oldest item; None when there is none, or it cannot be decoded."""
        return next(iter(await self.pop_many(1, **fields)), None)

    async def pop_many(self, count: int, /, **fields: FieldValue) -> list[V]:
        """Remove and return up to `count` of the oldest items, oldest first.

        In a keyspace of role `queue`, when some cannot be decoded all stay and `UndecodableItems` is raised.
        """
        key = self._render(fields)
        if self.keyspace.role == "queue" and count > 0:
            return self._decode_all(await self._take(key, count))
        replies = await self._change_existing(key, ("LPOP", count))
        return self._decode_all((replies and replies[0]) or [])

    async def range(self, start: int = 0, stop: int = -1, /, **fields: FieldValue) -> list[V]:
        """Items by position, oldest first, `stop` included; -1 is the newest."""
        return self._decode_all(await self._read("LRANGE", self._render(fields), start, stop))

    async def size(self, /, **fields: FieldValue) -> int:
        """The number of items."""
        return int(await self._read("LLEN", self._render(fields)))

    async def _take(self, key: str, count: int) -> list[bytes]:
        """Remove the oldest items after decoding them: an item that cannot be decoded is never removed."""
        front: list[bytes] = await self._ask("LRANGE", key, 0, count - 1)
        lifetime = self.keyspace.lifetime
        while front:
            if any(self._decode(data) is None for data in front):
                self.stats.errors += 1
                raise UndecodableItems(self.keyspace.pattern, key)
            arguments: list[Arg] = [lifetime.on_change, lifetime.milliseconds or 0, count, *front]
            with self.stats.counting_errors:
                others: list[bytes] | None = await self._run(TAKE, (key,), arguments)
            if others is None:
                self.stats.writes += 1
                break
            front = others
        return front

    def _decode_all(self, stored: Sequence[bytes]) -> list[V]:
        decoded = [self._decode(data) for data in stored]
        self.stats.bytes_read += sum(map(len, stored))
        items = [item for item in decoded if item is not None]
        self.stats.undecodable += len(decoded) - len(items)
        if items:
            self.stats.hits += 1
        else:
            self.stats.misses += 1
        return items
