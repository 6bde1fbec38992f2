"""A listener: every entry after its position, in order and once; or a snapshot where entries may be missing.

It is an async iterator of `ProgressEntry` and `Missed`, and ends after a terminal event or a final snapshot.
All it keeps is its position in the stream, so a slow listener costs no memory: when it asks for more it gets
what the stream still has, or a `Missed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

from ephemera.errors import StoreClosed
from ephemera.keyspace import REDIS_ERRORS
from ephemera.patterns.progress._entries import ENDED, START, Missed, Position, ProgressEntry, Reopened
from ephemera.patterns.progress._stream_watcher import Fields, SnapshotLoader, StreamWatcher, WatchedStream

E = TypeVar("E")

Update: TypeAlias = ProgressEntry[E] | Missed
"""What a listener gets."""


class Listener(Generic[E]):
    """Follows a stream: `async with ... as updates: async for update in updates`.

    `catch_up` and `next_batch` return updates in batches, for code that forwards them.
    """

    def __init__(
        self, watcher: StreamWatcher[E], fields: Fields, after: str | None, load: SnapshotLoader
    ) -> None:
        self._watcher = watcher
        self._key = watcher.declaration.key(**fields)
        self._fields = fields
        self._load = load
        self._stream: WatchedStream[E] | None = None
        self._had_end = after == ENDED
        position = START if after is None or self._had_end else Position.parse(after)
        self._position = position or START
        self._lost = position is None  # malformed
        self._new = after is None
        self._synced = False
        self._batch: list[Update[E]] = []
        self._waiting: asyncio.Future[bool] | None = None
        self.ended = False
        """Whether the end was seen: nothing will ever follow."""
        self.closed = False
        """Whether it has stopped listening, at the end or before."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; a pending `next_batch` returns."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(True)
        if self._stream is not None:
            self._watcher.leave(self._stream)
            self._stream = None
        self.closed = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update[E]:
        while not self._batch:
            if self.ended or self.closed:
                self.close()
                raise StopAsyncIteration
            self._batch = (await (self.next_batch() if self._stream is not None else self.catch_up()))[::-1]
        return self._batch.pop()

    async def catch_up(self) -> list[Update[E]]:
        """Start listening; returns what the listener lacks now, nothing if it is up to date or `ended`."""
        if self._watcher.closed:
            raise StoreClosed(f"{self._key!r}: the store is closed; open a new one")
        return await self._unless_closed(self._catch_up())

    async def next_batch(self) -> list[Update[E]]:
        """Wait for updates; an empty list is a heartbeat, about every 15 seconds of silence."""
        return await self._unless_closed(self._next_batch())

    async def _unless_closed(self, work: Awaitable[list[Update[E]]]) -> list[Update[E]]:
        """The updates; none if the store is closed before one arrives, which ends the listening."""
        try:
            return await work
        except StoreClosed:
            self.closed = True
            return []

    async def _catch_up(self) -> list[Update[E]]:
        self._stream = stream = self._watcher.join(self._key)
        try:
            await stream.read.run()
        except REDIS_ERRORS:
            return await self._start_without_redis(stream)
        self._synced = True
        if self._had_end:
            reopened = stream.mirror.reopened
            if reopened is None:
                self.ended = True
                return []
            self._position = reopened
        if self._lost or not stream.mirror.entries:
            # Not started yet, or deleted: only SQL knows.
            position = stream.mirror.resume(self._position)
            return [await self._missed(stream, position, recovered=self._new)]
        updates = await self._take(stream)
        if updates or self.ended:
            return updates
        # A listener that reconnects with every entry may have lost the terminal one.
        return await self._check_snapshot(stream)

    async def _start_without_redis(self, stream: WatchedStream[E]) -> list[Update[E]]:
        if self._had_end:
            self.ended = True
            return []
        return [await self._missed(stream, self._position)]

    async def _next_batch(self) -> list[Update[E]]:
        while (stream := self._stream) is not None and not self._watcher.closed:
            if not self._synced and not stream.failing:
                self._synced = await _try_read(stream)
            if self._synced:
                updates = await self._take(stream)
                if updates or self.ended:
                    return updates
            self._waiting = stream.wait_for_change()
            if not await self._waiting:
                return await self._check_snapshot(stream) if stream.check_due else []
        self.closed = True
        return []

    async def _take(self, stream: WatchedStream[E]) -> list[Update[E]]:
        """The entries of the mirror that this listener lacks."""
        following = stream.mirror.follow(self._position)
        if following is None:
            return [await self._missed(stream, stream.mirror.resume(self._position))]
        updates: list[Update[E]] = []
        for entry in following:
            if isinstance(entry, Reopened) or (entry.is_last and entry is not following[-1]):
                self._position = entry.position  # a terminal entry that did not remain the last one
                continue
            if not isinstance(entry, ProgressEntry):
                if not updates:
                    return [await self._missed(stream, entry.position)]
                break
            updates.append(entry)
            self._position = entry.position
        # A listener that reconnects with the terminal entry has seen everything.
        self.ended = updates[-1].is_last if updates else stream.mirror.holds_end(self._position)
        return updates

    async def _check_snapshot(self, stream: WatchedStream[E]) -> list[Update[E]]:
        """Ask SQL whether it is over: the terminal event may be lost."""
        snapshot = await stream.snapshot(self._load, self._fields)
        if not snapshot.ended:
            return []
        if await _try_read(stream) and (updates := await self._take(stream)):
            return updates  # the terminal event arrived in the meantime
        self.ended = True
        return [Missed(self._position, snapshot)]

    async def _missed(
        self, stream: WatchedStream[E], position: Position, *, recovered: bool = False
    ) -> Missed:
        snapshot = await stream.snapshot(self._load, self._fields)
        self._position, self._lost, self.ended = position, False, snapshot.ended
        return Missed(position, snapshot, recovered=recovered)


async def _try_read(stream: WatchedStream[E]) -> bool:
    """Read the stream; False if that failed."""
    try:
        await stream.read.run()
    except REDIS_ERRORS:
        return False
    return True
