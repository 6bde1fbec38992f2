"""What a process watches: one mirror a stream, whoever listens to it, and one task that keeps them all fresh.

A wake (the channel names a stream that has grown) reads what is new into that stream's mirror, once, for all
its listeners. Pub/sub loses messages, so it only wakes: each stream that was not read for a second is read
anyway, the longest unread first, at most a thousand a second; after an interrupted subscription, all are.
Nothing is queued for a listener: it takes from the mirror by its own position, when it has time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns.progress._entries import Entry, Hole, Mirror, Position, Snapshot, before
from ephemera.patterns.progress._single_flight import Rounds

if TYPE_CHECKING:
    from ephemera.patterns.progress._declaration import Progress


E = TypeVar("E")
Load = Callable[..., Awaitable[Snapshot]]
Fields = Mapping[str, FieldValue]

_LOOK = 1.0  # seconds after which a stream is read without a wake
_MOST_LOOKS = 1000  # streams a second
_BEATS_TO_CHECK = 4  # of quiet, after which SQL is asked whether it is over


class Watch(Generic[E]):
    """One stream in this process."""

    def __init__(self, tower: Watchtower[E], key: str) -> None:
        self.key = key
        self.mirror: Mirror[E] = Mirror(tower.declared.max_entries)
        self.listeners = 0
        self.read = Rounds(self._read)
        self.failing = False
        """Whether the last read failed."""
        self.read_at = 0.0
        self.checking = False
        """Whether it is time to ask SQL if it is over."""
        self._beat_at = self._checked_at = monotonic()
        self._tower = tower
        self._waiting: list[asyncio.Future[bool]] = []
        self._snapshots: dict[Load, Rounds[Snapshot]] = {}

    def news(self) -> asyncio.Future[bool]:
        """Ends when there may be something new; with False when it is only a beat of the heart."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def tell(self, *, news: bool) -> None:
        """Wake everybody who waits."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(news)

    def tick(self, now: float) -> None:
        """Have listeners show that they are there, and ask SQL now and then, when the stream is quiet."""
        heartbeat = self._tower.declared.heartbeat
        if now - self._beat_at < heartbeat:
            return
        self._beat_at = now
        # More often when the event that ends it is likely to be lost: no stream, or no server.
        quiet = now - self._checked_at >= _BEATS_TO_CHECK * heartbeat
        self.checking = quiet or self.failing or not self.mirror.entries
        if self.checking:
            self._checked_at = now
        self.tell(news=False)

    async def snapshot(self, load: Load, fields: Fields) -> Snapshot:
        """How things stand, read after now; one query for all who ask at a time."""
        rounds = self._snapshots.get(load)
        if rounds is None:
            rounds = self._snapshots[load] = Rounds(lambda: load(**fields))
        try:
            return await rounds.get()
        finally:
            if rounds.idle:
                self._snapshots.pop(load, None)

    def close(self) -> None:
        """End what runs for listeners that are gone."""
        self.read.stop()
        for rounds in self._snapshots.values():
            rounds.stop()
        self.tell(news=True)

    async def _read(self) -> None:
        self.read_at = monotonic()
        try:
            changed = await self._catch_up()
        except REDIS_ERRORS:
            self.failing = True
            self._tower.stats.errors += 1
            raise
        if changed or self.failing:
            self.failing = False
            self._beat_at = self._checked_at = monotonic()
            self.tell(news=True)

    async def _catch_up(self) -> bool:
        """Bring the mirror up to date; False when it was."""
        last = self.mirror.last
        if last is not None:
            entries = await self._range(str(last))
            if entries and entries[0].position == last:
                self.mirror.extend(entries[1:])
                return len(entries) > 1
        # Nothing was read yet, or the stream is not the one it was.
        self.mirror.entries = await self._range("-")
        return last is not None or bool(self.mirror.entries)

    async def _range(self, first: str) -> list[Entry[E] | Hole]:
        """What the stream holds from an id on."""
        found: list[Entry[E] | Hole] = []
        for entry_id, flat in await self._tower.call("XRANGE", self.key, first, "+"):
            position = Position.parse(entry_id.decode())
            if position is None:
                continue  # nothing that `append_entry` has added
            if found and found[-1].position.n + 1 != position.n:
                found.append(Hole(before(position)))  # somebody has deleted from it
            found.append(self._entry(position, flat))
        return found

    def _entry(self, position: Position, flat: list[bytes]) -> Entry[E] | Hole:
        event = self._tower.declared.decode(flat[1]) if flat[0] == b"d" else None
        if event is None:
            self._tower.stats.undecodable += 1
            return Hole(position)
        return Entry(position, event, ends=isinstance(event, self._tower.declared.terminal))


class Watchtower(Generic[E]):
    """All streams of one declaration that this process watches, on one subscription."""

    def __init__(self, declared: Progress[E], store: Store) -> None:
        self.declared = declared
        self.stats = store[declared.space].stats
        self._client = store.client(declared.space.role)
        self.call = self._client.call
        self._channel = store[declared.wake]
        self._watches: dict[str, Watch[E]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.closed = False
        store.before_close(self.aclose)

    def join(self, key: str) -> Watch[E]:
        """The watch of a stream, for one more listener."""
        if not self._tasks and not self.closed:
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._listen(), name="ephemera-progress-wakes"),
                loop.create_task(self._look(), name="ephemera-progress-looks"),
            ]
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = Watch(self, key)
        watch.listeners += 1
        return watch

    def leave(self, watch: Watch[E]) -> None:
        """One listener less; the last takes the watch with it."""
        watch.listeners -= 1
        if not watch.listeners and self._watches.get(watch.key) is watch:
            del self._watches[watch.key]
            watch.close()

    async def aclose(self) -> None:
        """Watch nothing any more; listeners end."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for watch in list(self._watches.values()):
            watch.close()

    async def _listen(self) -> None:
        while True:
            with suppress(*REDIS_ERRORS):
                async with self._client.subscribe(self._channel.name()) as messages:
                    self._read_all()  # what was added before the server confirmed
                    async for message in messages:
                        if message.lost:
                            self._read_all()
                        elif (
                            watch := self._watches.get(message.data.decode("utf-8", "replace"))
                        ) is not None:
                            watch.read.ask()
                    return  # the store was closed
            await asyncio.sleep(_LOOK)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK, self.declared.heartbeat))
            now = monotonic()
            unread = [watch for watch in self._watches.values() if now - watch.read_at >= _LOOK]
            if len(unread) > _MOST_LOOKS:
                unread = sorted(unread, key=_read_at)[:_MOST_LOOKS]
            for watch in unread:
                watch.read.ask()
            for watch in list(self._watches.values()):
                watch.tick(now)

    def _read_all(self) -> None:
        for watch in self._watches.values():
            watch.read.ask()


def _read_at(watch: Watch[Any]) -> float:
    return watch.read_at
