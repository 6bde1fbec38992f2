"""The events of a store: publish, consume, inspect, and replay dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ephemera.keyspace import FieldValue, RecordCodec, Store, check_async, check_durations
from ephemera.patterns.events._consumer import Consumer, Handler
from ephemera.patterns.events._entries import DeadLetter
from ephemera.patterns.events._group_member import (
    TRIM,
    ConsumerGroupMember,
    StreamInfo,
    consumer_name,
    stream_info,
)
from ephemera.patterns.events._outcomes import ConsumerCounts, GroupCounts
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.events._declaration import Events

E = TypeVar("E")

PUBLISH = Script.load("ephemera.patterns.events", "publish")
REPLAY = Script.load("ephemera.patterns.events", "replay")

_PUBLISH_BATCH = 500  # events that one script adds: a millisecond of the server's time
_REPLAY_BATCH = 100
_GRACE = timedelta(seconds=30)


class BoundEvents(Generic[E]):
    """The events of one store: what `store[EVENTS]` gives."""

    def __init__(self, declaration: Events[E], store: Store) -> None:
        self.declaration = declaration
        self._stats = store[declaration.keyspace].stats
        self._letters = store[declaration.dead_letters]
        self._client = store.client("queue")
        self._call = self._client.call
        self._render = declaration.keyspace.template.render
        self._encode = declaration.codec.encode
        self._counts = GroupCounts()
        self._consumed: set[tuple[str, str]] = set()
        self._shape = cast("RecordCodec[Any]", declaration.keyspace.codec).shape

    async def publish(self, event: E, /, **fields: FieldValue) -> str:
        """Add an event to the stream and return its id; `Unavailable` if it certainly was not added."""
        data = self._encode(event)
        with self._stats.counting_errors:
            entry_id: bytes = await self._call(
                "XADD", self._render(fields), "*", b"event", data, b"_v", self._shape
            )
        self._stats.writes += 1
        self._stats.bytes_written += len(data)
        return entry_id.decode()

    async def publish_many(self, events: Iterable[E], /, **fields: FieldValue) -> list[str]:
        """Add events in one round trip and in their order, and return their ids; all or none of each 500."""
        key = (self._render(fields),)
        data = list(map(self._encode, events))
        starts = range(0, len(data), _PUBLISH_BATCH)
        with self._stats.counting_errors:
            added = await asyncio.gather(
                *(
                    self._client.run(PUBLISH, key, (self._shape, *data[start : start + _PUBLISH_BATCH]))
                    for start in starts
                )
            )
        self._stats.writes += len(data)
        self._stats.bytes_written += sum(map(len, data))
        return [entry_id.decode() for ids in added for entry_id in ids]

    def consume(
        self,
        group: str,
        handler: Handler[E],
        /,
        *,
        concurrency: int = 10,
        grace: timedelta = _GRACE,
        **fields: FieldValue,
    ) -> Consumer[E]:
        """A consumer that runs for the length of an `async with` block.

        At most `concurrency` handlers run at a time. At the end of the block, running handlers get `grace` to
        finish; all other events go to other consumers. A handler with a wrong signature is refused at once.
        """
        pattern = self.declaration.keyspace.pattern
        check_async(pattern, handler, "async def handle(event, delivery)", "event", "delivery")
        check_durations(pattern, grace=grace)
        keys = self.declaration.keys(fields)
        letter_codec: Any = self.declaration.dead_letters.codec
        member = ConsumerGroupMember(
            self._client, self.declaration.delivery, letter_codec, *keys, group, consumer_name()
        )
        self._consumed.add(keys)
        seconds = grace.total_seconds()
        return Consumer(member, self.declaration.codec, handler, concurrency, seconds, self._counts)

    async def info(self, /, **fields: FieldValue) -> StreamInfo:
        """The stream's length, its number of dead letters, and each group's lag and pending events."""
        return await stream_info(self._client, *self.declaration.keys(fields))

    async def consumed_streams(self, limit: int) -> list[StreamInfo]:
        """The state of streams that this store has consumed from, and of the one stream without fields."""
        keys = set(list(self._consumed)[:limit])
        if not self.declaration.keyspace.template.fields:
            keys.add(self.declaration.keys({}))
        return await asyncio.gather(*(stream_info(self._client, *each) for each in sorted(keys)))

    def consumer_counts(self) -> dict[str, ConsumerCounts]:
        """What all consumers of this store have done, by group; also those that have stopped."""
        return self._counts.by_group()

    async def dead_letters(
        self, /, *, first: str = "-", count: int = 100, **fields: FieldValue
    ) -> list[DeadLetter]:
        """Dead letters, oldest first, from the id `first` on; `(id` excludes that one."""
        found = await self._client.call(
            "XRANGE", self.declaration.keys(fields)[1], first, "+", "COUNT", count
        )
        letters = ((entry_id.decode(), self._letters.decode(flat)) for entry_id, flat in found)
        return [DeadLetter.decode(entry_id, letter) for entry_id, letter in letters if letter is not None]

    async def replay(self, ids: Iterable[str] | None = None, /, **fields: FieldValue) -> int:
        """Put dead letters back on the stream for the group that failed: those given, or all there are."""
        stream, dead = self.declaration.keys(fields)
        if ids is not None:
            return await self._replay_batches(stream, dead, list(ids))
        newest = await self._client.call("XREVRANGE", dead, "+", "-", "COUNT", 1)
        # Those that fail again meanwhile come after this one, and are not replayed a second time.
        last, replayed, cursor = (newest[0][0] if newest else b"-"), 0, b"-"
        while page := await self._client.call("XRANGE", dead, cursor, last, "COUNT", _REPLAY_BATCH):
            replayed += await self._replay_batches(stream, dead, [entry_id for entry_id, _ in page])
            cursor = b"(" + page[-1][0]
        return replayed

    async def trim(self, /, **fields: FieldValue) -> int:
        """Remove events that every group has handled; consumers do this automatically."""
        return int(await self._client.run(TRIM, self.declaration.keys(fields)[:1]))

    async def _replay_batches(self, stream: str, dead: str, ids: list[Any]) -> int:
        replayed = 0
        for start in range(0, len(ids), _REPLAY_BATCH):
            batch = ids[start : start + _REPLAY_BATCH]
            replayed += len(await self._client.run(REPLAY, (stream, dead), (self._shape, *batch)))
        return replayed
