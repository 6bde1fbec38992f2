"""The events of a store: publish, consume, inspect, and replay."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemera.keyspace import RECORD_LAYOUT, FieldValue, Store, check_async, check_durations, field_value
from ephemera.patterns.events._consumer import Consumer, Handler
from ephemera.patterns.events._entries import DeadLetter
from ephemera.patterns.events._group_info import (
    ConsumerCounts,
    GroupCounts,
    StreamInfo,
    StreamKeys,
    stream_info,
)
from ephemera.patterns.events._group_member import (
    TRIM,
    ConsumerGroupMember,
    OrderedGroupMember,
    Successors,
    consumer_name,
)
from ephemera.patterns.events._policy import ErrorActions, ErrorPolicy, milliseconds
from ephemera.patterns.events._replay import ReplayedEvents, replay_dead_letters, replay_since
from ephemera.patterns.events._shared_reads import SHARED_READS
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.events._declaration import Events

E = TypeVar("E")

PUBLISH = Script.load("ephemera.patterns.events", "publish")

_PUBLISH_BATCH = 500  # events that one script adds: a millisecond of the server's time
_GRACE = timedelta(seconds=30)
_RETRY_ALL: ErrorActions = {}


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
        self._reads = store[SHARED_READS]
        self._order_by = declaration.order_by

    async def publish(self, event: E, /, **fields: FieldValue) -> str:
        """Add an event to the stream and return its id; `Unavailable` if it certainly was not added."""
        data = self._encode(event)
        ordered = () if self._order_by is None else (b"_key", str(field_value(event, self._order_by)))
        with self._stats.counting_errors:
            entry_id: bytes = await self._call(
                "XADD", self._render(fields), "*", b"event", data, b"_v", RECORD_LAYOUT, *ordered
            )
        self._stats.writes += 1
        self._stats.bytes_written += len(data)
        return entry_id.decode()

    async def publish_many(self, events: Iterable[E], /, **fields: FieldValue) -> list[str]:
        """Add events in one round trip and in their order, and return their ids; all or none of each 500."""
        key = (self._render(fields),)
        events = list(events)
        data: list[Any] = list(map(self._encode, events))
        size, kind, step = sum(map(len, data)), "", _PUBLISH_BATCH
        if self._order_by is not None:
            keys = (str(field_value(event, self._order_by)) for event in events)
            data = [part for pair in zip(data, keys, strict=True) for part in pair]
            kind, step = "ordered", 2 * _PUBLISH_BATCH
        with self._stats.counting_errors:
            added = await asyncio.gather(
                *(
                    self._client.run(PUBLISH, key, (RECORD_LAYOUT, kind, *data[start : start + step]))
                    for start in range(0, len(data), step)
                )
            )
        self._stats.writes += len(events)
        self._stats.bytes_written += size
        return [entry_id.decode() for ids in added for entry_id in ids]

    def consume(
        self,
        group: str,
        handler: Handler[E],
        /,
        *,
        concurrency: int = 10,
        grace: timedelta = _GRACE,
        on_error: ErrorActions = _RETRY_ALL,
        **fields: FieldValue,
    ) -> Consumer[E]:
        """A consumer that runs for the length of an `async with` block.

        Args:
            group: The consumer group, which is created if it does not exist.
            handler: Called with each event and its `Delivery`; one with a wrong signature is refused.
            concurrency: How many handlers run at a time.
            grace: How long running handlers may take at the end of the block; all other events go to other
                consumers.
            on_error: What becomes of an event by the exception that its handler raised: a `Redeliver`, a
                `Pause`, `"dead_letter"` or `"drop"`. Others are retried by the stream's `DeliveryPolicy`.
            fields: The fields of the stream's key.

        """
        pattern = self.declaration.keyspace.pattern
        check_async(pattern, handler, "async def handle(event, delivery)", "event", "delivery")
        check_durations(pattern, grace=grace)
        keys = self.declaration.keys(fields)
        member = self._member(keys, group, self.declaration.lanes_key(fields))
        bell = partial(self.declaration.bell_key, fields)
        return Consumer(
            member,
            self.declaration.codec,
            handler,
            ErrorPolicy(pattern, self.declaration.delivery, on_error),
            partial(self._reads.read, member, bell),
            concurrency=concurrency,
            grace=grace.total_seconds(),
            group_counts=self._counts,
        )

    async def info(self, /, **fields: FieldValue) -> StreamInfo:
        """The stream's length, its number of dead letters, and each group's lag, pending events and pause."""
        return await stream_info(self._client, self.declaration.keys(fields))

    async def consumed_streams(self, limit: int) -> list[StreamInfo]:
        """The state of streams that this store consumes or has consumed, and of the one without fields."""
        keys = set(self._counts.streams()[:limit])
        if not self.declaration.keyspace.template.fields:
            keys.add(self.declaration.keys({}))
        return await asyncio.gather(*(stream_info(self._client, each) for each in sorted(keys)))

    def consumer_counts(self) -> dict[str, ConsumerCounts]:
        """What all consumers of this store have done, by group; also those that have stopped."""
        return self._counts.by_group()

    async def dead_letters(
        self, /, *, first: str = "-", count: int = 100, **fields: FieldValue
    ) -> list[DeadLetter]:
        """Dead letters, oldest first, from the id `first` on; `(id` excludes that one.

        `count` is how many at most.
        """
        found = await self._client.call(
            "XRANGE", self.declaration.keys(fields).dead, first, "+", "COUNT", count
        )
        letters = ((entry_id.decode(), self._letters.decode(flat)) for entry_id, flat in found)
        return [DeadLetter.decode(entry_id, letter) for entry_id, letter in letters if letter is not None]

    async def replay(self, ids: Iterable[str] | None = None, /, **fields: FieldValue) -> int:
        """Put dead letters back on the stream for the group that failed: those given, or all there are."""
        return await replay_dead_letters(self._client, self.declaration.keys(fields), ids)

    async def replay_since(
        self,
        group: str,
        since: datetime | str,
        /,
        *,
        until: datetime | str | None = None,
        limit: int = 10_000,
        again: bool = False,
        **fields: FieldValue,
    ) -> ReplayedEvents:
        """Deliver events that a group has handled once more, to this group only.

        They are copied to the end of the stream, with their first ids. What was trimmed is gone, and
        `may_lack` of the result says if that is possible: declare a `retention`. Events that the group has
        not got yet, or that are pending, are not copied.

        Args:
            group: The group that gets them; other groups pass them over.
            since: The first event: a datetime with a time zone, or an id.
            until: The last one, inclusive; None for all up to now.
            limit: How many to replay at most; the result says where to continue.
            again: Whether an `OnceGuard` takes them for new events. By default it does not, so events whose
                effect is in SQL have none the second time, and only those that had none get theirs.
            fields: The fields of the stream's key.

        """
        key = self.declaration.keys(fields).stream
        return await replay_since(self._client, key, group, (since, until), limit, again=again)

    async def trim(self, /, **fields: FieldValue) -> int:
        """Remove events that every group has handled; consumers do this automatically."""
        retained = milliseconds(self.declaration.delivery.retention)
        return int(await self._client.run(TRIM, (self._render(fields),), (retained,)))

    def _member(self, keys: StreamKeys, group: str, lanes: str | None) -> ConsumerGroupMember:
        codec: Any = self.declaration.dead_letters.codec
        known = (self._client, self.declaration.delivery, codec, keys, group, consumer_name())
        if lanes is None:
            return ConsumerGroupMember(*known)
        return OrderedGroupMember(*known, lanes=lanes, successors=Successors())
