"""A listener: everything after its position, in order, once; or a snapshot where something may be missing.

It is an async iterator of `Entry` and `Missed`, and ends after a terminal event or a snapshot that says so.
It holds its place in the stream by position and nothing else, so a slow one costs no memory: when it comes
back for more it gets what the stream still has, or a `Missed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

from ephemera.errors import StoreClosed
from ephemera.keyspace import REDIS_ERRORS
from ephemera.patterns.progress._entries import ENDED, START, Entry, Missed, Position
from ephemera.patterns.progress._stream_watcher import Fields, Load, Watch, Watchtower

E = TypeVar("E")

Update: TypeAlias = Entry[E] | Missed
"""What a listener gets."""


class Listener(Generic[E]):
    """One who follows a stream: `async with ... as updates: async for update in updates`.

    `begin` and `more` give what there is in batches, for those who pass it on.
    """

    def __init__(self, tower: Watchtower[E], fields: Fields, after: str | None, load: Load) -> None:
        self._tower = tower
        self._key = tower.declared.key(**fields)
        self._fields = fields
        self._load = load
        self._watch: Watch[E] | None = None
        position = START if after is None else Position.parse(after)
        self._position = position or START
        self._lost = position is None  # a position nobody can make sense of
        self._synced = False
        self._batch: list[Update[E]] = []
        self._waiting: asyncio.Future[bool] | None = None
        self.ended = after == ENDED
        """Whether the end was seen: nothing more will ever come."""
        self.closed = False
        """Whether it listens no more, at the end or before."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more; whoever waits for more is let go."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(True)
        if self._watch is not None:
            self._tower.leave(self._watch)
            self._watch = None
        self.closed = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update[E]:
        while not self._batch:
            if self.ended or self.closed:
                self.close()
                raise StopAsyncIteration
            self._batch = (await (self.more() if self._watch is not None else self.begin()))[::-1]
        return self._batch.pop()

    async def begin(self) -> list[Update[E]]:
        """What the listener lacks at this moment; empty when it is up to date, or `ended`."""
        if self._tower.closed:
            raise StoreClosed(f"{self._key!r}: the store is closed; open a new one")
        return [] if self.ended else await self._unless_closed(self._begin())

    async def more(self) -> list[Update[E]]:
        """Wait for what comes next; an empty list says that the stream is quiet, about every 15 seconds."""
        return await self._unless_closed(self._more())

    async def _unless_closed(self, work: Awaitable[list[Update[E]]]) -> list[Update[E]]:
        """What there is; nothing when the store is closed meanwhile, which ends the listening."""
        try:
            return await work
        except StoreClosed:
            self.closed = True
            return []

    async def _begin(self) -> list[Update[E]]:
        self._watch = watch = self._tower.join(self._key)
        try:
            await watch.read.get()
        except REDIS_ERRORS:
            return [await self._missed(watch, self._position)]
        self._synced = True
        if self._lost or not watch.mirror.entries:
            # Not begun yet, or gone: nobody can tell from here, SQL can.
            return [await self._missed(watch, watch.mirror.resume(self._position))]
        updates = await self._take(watch)
        if updates or self.ended:
            return updates
        # One who has all there is may have come back because of what became of the rest.
        return await self._look(watch)

    async def _more(self) -> list[Update[E]]:
        while (watch := self._watch) is not None and not self._tower.closed:
            if not self._synced and not watch.failing:
                self._synced = await _readable(watch)
            if self._synced:
                updates = await self._take(watch)
                if updates or self.ended:
                    return updates
            self._waiting = watch.news()
            if not await self._waiting:
                return await self._check(watch)
        self.closed = True
        return []

    async def _take(self, watch: Watch[E]) -> list[Update[E]]:
        """What the mirror has for this listener."""
        following = watch.mirror.follow(self._position)
        if following is None:
            return [await self._missed(watch, watch.mirror.resume(self._position))]
        updates: list[Update[E]] = []
        for entry in following:
            if not isinstance(entry, Entry):
                if not updates:
                    return [await self._missed(watch, entry.position)]
                break
            updates.append(entry)
            self._position = entry.position
            if entry.ends:
                break
        # One who came back with the last of all has seen everything.
        self.ended = updates[-1].ends if updates else watch.mirror.holds_end(self._position)
        return updates

    async def _check(self, watch: Watch[E]) -> list[Update[E]]:
        """Ask SQL, now and then, whether it is over: the event that says so may never have arrived."""
        return await self._look(watch) if watch.checking else []

    async def _look(self, watch: Watch[E]) -> list[Update[E]]:
        """The end, if it is over by SQL."""
        snapshot = await watch.snapshot(self._load, self._fields)
        if not snapshot.ended:
            return []
        if await _readable(watch) and (updates := await self._take(watch)):
            return updates  # it was about to arrive
        self.ended = True
        return [Missed(self._position, snapshot)]

    async def _missed(self, watch: Watch[E], position: Position) -> Missed:
        snapshot = await watch.snapshot(self._load, self._fields)
        self._position, self._lost, self.ended = position, False, snapshot.ended
        return Missed(position, snapshot)


async def _readable(watch: Watch[E]) -> bool:
    """Whether the stream could be read just now."""
    try:
        await watch.read.get()
    except REDIS_ERRORS:
        return False
    return True
