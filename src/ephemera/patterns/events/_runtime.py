"""The events of a store: publish, consume, inspect, and replay.

A replay publishes dead letters again for the group that failed, or handled events for one group from a time
on.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ephemera.errors import InvalidValue, ServerError
from ephemera.keyspace import (
    RECORD_LAYOUT,
    FieldValue,
    Store,
    check_async,
    check_durations,
    field_value,
    milliseconds,
)
from ephemera.patterns.events._consumer import Consumer, Handler
from ephemera.patterns.events._entries import REPLAYED, DeadLetter
from ephemera.patterns.events._group_info import (
    ConsumerCounts,
    GroupCounts,
    StreamInfo,
    StreamKeys,
    stream_info,
)
from ephemera.patterns.events._group_member import (
    SHARED_READS,
    TRIM,
    ConsumerGroupMember,
    OrderedGroupMember,
    Successors,
    consumer_name,
)
from ephemera.patterns.events._policy import ErrorActions, ErrorPolicy
from ephemera.wire import Client, Script

if TYPE_CHECKING:
    from ephemera.patterns.events._declaration import Events


REPLAY = Script.load("ephemera.patterns.events", "replay")
REPLAY_SINCE = Script.load("ephemera.patterns.events", "replay_since")

_BATCH = 100
_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")

E = TypeVar("E")

PUBLISH = Script.load("ephemera.patterns.events", "publish")

_PUBLISH_BATCH = 500  # events that one script adds: a millisecond of the server's time
_GRACE = timedelta(seconds=30)
_RETRY_ALL: ErrorActions = {}


class ReplayedEvents(msgspec.Struct, frozen=True):
    """What `replay_since` has done."""

    replayed: int
    """How many events were put on the stream again."""
    following: str | None
    """Where to continue if the limit was reached: the `since` of the next call. None at the end."""
    may_lack: bool = False
    """Whether events after `since` may have been trimmed before, and so are not among them."""


async def replay_dead_letters(client: Client, keys: StreamKeys, ids: Iterable[str] | None) -> int:
    """Put dead letters back on their stream: those given, or all there are."""
    if ids is not None:
        return await _replay_batches(client, keys, list(ids))
    newest = await client.call("XREVRANGE", keys.dead, "+", "-", "COUNT", 1)
    # Those that fail again in the meantime come after this one, and are not replayed a second time.
    last, replayed, cursor = (newest[0][0] if newest else b"-"), 0, b"-"
    while page := await client.call("XRANGE", keys.dead, cursor, last, "COUNT", _BATCH):
        replayed += await _replay_batches(client, keys, [entry_id for entry_id, _ in page])
        cursor = b"(" + page[-1][0]
    return replayed


async def replay_since(
    client: Client,
    key: str,
    group: str,
    bounds: tuple[datetime | str, datetime | str | None],
    limit: int,
    *,
    again: bool,
) -> ReplayedEvents:
    """Put events that a group has handled on the stream again, for this group only."""
    if limit < 1:
        raise InvalidValue("limit", "at least 1", str(limit))
    since, until = bounds
    last = await _last_delivered(client, key, group)
    if until is not None:
        last = min(last, _entry_id("until", until), key=_as_range_end)
    suffix = f"{REPLAYED}{secrets.token_hex(4)}" if again else ""
    following: Any = _entry_id("since", since)
    replayed, may_lack = 0, await _was_trimmed_after(client, key, following)
    while following and replayed < limit:
        count = min(_BATCH, limit - replayed)
        arguments = (RECORD_LAYOUT, group, following, last, count, suffix)
        reached, added = await client.run(REPLAY_SINCE, (key,), arguments)
        following = reached and reached.decode()
        replayed += added
    return ReplayedEvents(replayed, _after(following) if following else None, may_lack)


async def _was_trimmed_after(client: Client, key: str, since: str) -> bool:
    """Whether the stream has lost entries, and begins after this id."""
    state = await client.call("XINFO", "STREAM", key)
    first = state[b"recorded-first-entry-id"].decode()
    begins_later = state[b"length"] == 0 or _as_range_end(first) > _as_range_end(since)
    return bool(state[b"entries-added"] > state[b"length"] and begins_later)


async def _last_delivered(client: Client, key: str, group: str) -> str:
    """The last event that a group has got; what it has not got yet need not be replayed."""
    try:
        groups = await client.call("XINFO", "GROUPS", key)
    except ServerError as error:
        if "no such key" not in error.message:
            raise
        groups = []
    delivered = {found[b"name"].decode("utf-8", "replace"): found[b"last-delivered-id"] for found in groups}
    if group not in delivered:
        known = ", ".join(sorted(delivered)) or "none"
        raise InvalidValue("group", f"a group of {key!r} (it has: {known})", repr(group))
    return str(delivered[group].decode())


def _entry_id(name: str, moment: datetime | str) -> str:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidValue(name, "a datetime with a time zone, or the id of an event", repr(moment))
        return f"{max(0, int(moment.timestamp() * 1000))}"
    if not _ID.fullmatch(moment):
        raise InvalidValue(name, "a datetime with a time zone, or the id of an event", repr(moment))
    return moment


def _as_range_end(entry_id: str) -> tuple[int, int]:
    """An id as XRANGE takes it for the end of a range: without a number, all of its millisecond."""
    time, _, number = entry_id.partition("-")
    return int(time), int(number) if number else 2**64


def _after(following: str) -> str:
    """The id after that of an exclusive start."""
    time, _, number = following.removeprefix("(").partition("-")
    return f"{time}-{int(number) + 1}"


async def _replay_batches(client: Client, keys: StreamKeys, ids: list[Any]) -> int:
    replayed = 0
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        replayed += len(await client.run(REPLAY, (keys.stream, keys.dead), (RECORD_LAYOUT, *batch)))
    return replayed


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
        """What all consumers of this store have done, by group, including those that have stopped."""
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
        """Deliver again, to this group only, events that it has handled.

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
