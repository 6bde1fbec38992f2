"""The events of a store: publishing, consuming, looking, and putting dead letters back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store, check_async, check_durations
from ephemera.patterns.events._consumer import Consumer, Handler
from ephemera.patterns.events._entries import DeadLetter
from ephemera.patterns.events._groups import StreamReading, read_stream
from ephemera.patterns.events._members import TRIM, Member
from ephemera.patterns.events._outcome import Tallies
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.events._declaration import Events

E = TypeVar("E")

PUBLISH = Script.load("ephemera.patterns.events", "publish")
REPLAY = Script.load("ephemera.patterns.events", "replay")

_TOGETHER = 500  # events that one script adds: a millisecond of the server's time
_REPLAYED_TOGETHER = 100
_GRACE = timedelta(seconds=30)


class BoundEvents(Generic[E]):
    """The events of one store: what `store[EVENTS]` gives."""

    def __init__(self, declared: Events[E], store: Store) -> None:
        self.declared = declared
        self._stats = store[declared.space].stats
        self._letters = store[declared.dead]
        self._client = store.client("queue")
        self._call = self._client.call
        self._render = declared.space.template.render
        self._encode = declared.codec.encode
        self.tallies = Tallies()
        self.consumed: set[tuple[str, str]] = set()
        """The streams that this store has consumed from, each with its dead letters."""
        self._shape: bytes = declared.space.codec.shape  # type: ignore[union-attr]

    async def publish(self, event: E, /, **fields: FieldValue) -> str:
        """Add an event to the stream and return its id; `Unavailable` when it certainly was not added."""
        data = self._encode(event)
        try:
            added = await self._call("XADD", self._render(fields), "*", b"event", data, b"_v", self._shape)
        except REDIS_ERRORS:
            self._stats.errors += 1
            raise
        self._stats.writes += 1
        self._stats.bytes_written += len(data)
        return added.decode()  # type: ignore[no-any-return]

    async def publish_many(self, events: Iterable[E], /, **fields: FieldValue) -> list[str]:
        """Add events in one trip, in their order, and return their ids; all or none of each 500."""
        key = (self._render(fields),)
        data = list(map(self._encode, events))
        starts = range(0, len(data), _TOGETHER)
        try:
            added = await asyncio.gather(
                *(
                    self._client.run(PUBLISH, key, (self._shape, *data[start : start + _TOGETHER]))
                    for start in starts
                )
            )
        except REDIS_ERRORS:
            self._stats.errors += 1
            raise
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
        """A consumer that works for the length of an `async with` block.

        At most `concurrency` handlers run at a time. At its end, what runs is awaited for `grace`, and what
        is left goes to other consumers. A handler that no event could be given to is refused at once.
        """
        pattern = self.declared.space.pattern
        check_async(pattern, handler, "async def handle(event, delivery)", "event", "delivery")
        check_durations(pattern, grace=grace)
        member = Member.join(self._client, self.declared, fields, group)
        self.consumed.add((member.key, member.dead))
        seconds = grace.total_seconds()
        return Consumer(member, self.declared.codec, handler, concurrency, seconds, self.tallies)

    async def reading(self, /, **fields: FieldValue) -> StreamReading:
        """How long the stream is, how many dead letters there are, and each group's lag and pending."""
        return await read_stream(self._client, *self.declared.keys(fields))

    async def dead(self, /, *, first: str = "-", count: int = 100, **fields: FieldValue) -> list[DeadLetter]:
        """Dead letters, oldest first, from the id `first` on; `(id` leaves that one out."""
        found = await self._client.call("XRANGE", self.declared.keys(fields)[1], first, "+", "COUNT", count)
        letters = ((entry_id.decode(), self._letters.decode(flat)) for entry_id, flat in found)
        return [DeadLetter.read(entry_id, letter) for entry_id, letter in letters if letter is not None]

    async def replay(self, ids: Iterable[str] | None = None, /, **fields: FieldValue) -> int:
        """Put dead letters back on the stream, for the group that failed: those named, or all there are."""
        stream, dead = self.declared.keys(fields)
        if ids is not None:
            return await self._put_back(stream, dead, list(ids))
        newest = await self._client.call("XREVRANGE", dead, "+", "-", "COUNT", 1)
        # Those that fail again meanwhile come after this one, and are not put back a second time.
        last, replayed, place = (newest[0][0] if newest else b"-"), 0, b"-"
        while page := await self._client.call("XRANGE", dead, place, last, "COUNT", _REPLAYED_TOGETHER):
            replayed += await self._put_back(stream, dead, [entry_id for entry_id, _ in page])
            place = b"(" + page[-1][0]
        return replayed

    async def trim(self, /, **fields: FieldValue) -> int:
        """Remove what every group has handled; consumers do this by themselves."""
        return int(await self._client.run(TRIM, self.declared.keys(fields)[:1]))

    async def _put_back(self, stream: str, dead: str, ids: list[Any]) -> int:
        replayed = 0
        for start in range(0, len(ids), _REPLAYED_TOGETHER):
            some = ids[start : start + _REPLAYED_TOGETHER]
            replayed += len(await self._client.run(REPLAY, (stream, dead), (self._shape, *some)))
        return replayed
