"""What a process watches: one mirror per stream for all its listeners, and the tasks that keep them fresh.

A wake-up (the channel names a stream that has grown) reads what is new into that stream's mirror, once for
all listeners. Pub/sub loses messages, so it only wakes: each stream that was not read for a second is read
anyway, the longest unread first, at most a thousand a second; after an interrupted subscription all are.
Nothing is queued for a listener: it reads from the mirror by its own position, when it has time.

Reads and snapshots are single-flight: a thousand listeners that reconnect at once cost one read of the stream
and one query, because those who ask during a run share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ephemera._futures import SingleFlight, cancel_all
from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns.progress._entries import (
    AnyEntry,
    Gap,
    Mirror,
    Position,
    ProgressEntry,
    Reopened,
    Snapshot,
    before,
)

if TYPE_CHECKING:
    from ephemera.patterns.progress._declaration import Progress


E = TypeVar("E")
SnapshotLoader = Callable[..., Awaitable[Snapshot]]
Fields = Mapping[str, FieldValue]

_POLL = 1.0  # seconds after which a stream is read without a wake-up
_MAX_POLLS = 1000  # streams a second
_HEARTBEATS_TO_CHECK = 4  # of silence, after which SQL is asked whether it is over


class WatchedStream(Generic[E]):
    """One stream that this process watches."""

    def __init__(self, watcher: StreamWatcher[E], key: str) -> None:
        self.key = key
        self.mirror: Mirror[E] = Mirror(watcher.declaration.max_entries)
        self.listeners = 0
        self.read = SingleFlight(self._read)
        self.failing = False
        """Whether the last read failed."""
        self.read_at = 0.0
        self.check_due = False
        """Whether listeners are to ask SQL if it is over."""
        self._heartbeat_at = self._checked_at = monotonic()
        self._watcher = watcher
        self._waiting: list[asyncio.Future[bool]] = []
        self._snapshots: dict[SnapshotLoader, SingleFlight[Snapshot]] = {}

    def wait_for_change(self) -> asyncio.Future[bool]:
        """Done when there may be new entries; its result is False for a mere heartbeat."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def notify(self, *, changed: bool) -> None:
        """Wake all listeners that wait."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(changed)

    def tick(self, now: float) -> None:
        """Send heartbeats while the stream is quiet, and have listeners ask SQL now and then."""
        heartbeat = self._watcher.declaration.heartbeat
        if now - self._heartbeat_at < heartbeat:
            return
        self._heartbeat_at = now
        # More often if the terminal event is likely to be lost: no stream, or no server.
        quiet = now - self._checked_at >= _HEARTBEATS_TO_CHECK * heartbeat
        self.check_due = quiet or self.failing or not self.mirror.entries
        if self.check_due:
            self._checked_at = now
        self.notify(changed=False)

    async def snapshot(self, load: SnapshotLoader, fields: Fields) -> Snapshot:
        """A snapshot that is loaded after this call; one query for all who ask at the same time."""
        flight = self._snapshots.get(load)
        if flight is None:
            flight = self._snapshots[load] = SingleFlight(lambda: load(**fields))
        try:
            return await flight.run()
        finally:
            if flight.is_idle:
                self._snapshots.pop(load, None)

    def close(self) -> None:
        """Cancel what runs for listeners that have left."""
        self.read.stop()
        for flight in self._snapshots.values():
            flight.stop()
        self.notify(changed=True)

    async def _read(self) -> None:
        self.read_at = monotonic()
        try:
            with self._watcher.stats.counting_errors:
                changed = await self._catch_up()
        except REDIS_ERRORS:
            self.failing = True
            raise
        if changed or self.failing:
            self.failing = False
            self._heartbeat_at = self._checked_at = monotonic()
            self.notify(changed=True)

    async def _catch_up(self) -> bool:
        """Bring the mirror up to date; False if it was."""
        last = self.mirror.last
        if last is not None:
            entries = await self._range(str(last))
            if entries and entries[0].position == last:
                self.mirror.extend(entries[1:])
                return len(entries) > 1
        # Nothing was read yet, or the stream was replaced.
        self.mirror.entries = await self._range("-")
        return last is not None or bool(self.mirror.entries)

    async def _range(self, first: str) -> list[AnyEntry[E]]:
        """The entries of the stream from an id on."""
        found: list[AnyEntry[E]] = []
        for entry_id, flat in await self._watcher.call("XRANGE", self.key, first, "+"):
            position = Position.parse(entry_id.decode())
            if position is None:
                continue  # not added by `append_entry`
            if found and found[-1].position.n + 1 != position.n:
                found.append(Gap(before(position)))  # entries were deleted
            found.append(self._entry(position, flat))
        return found

    def _entry(self, position: Position, flat: list[bytes]) -> AnyEntry[E]:
        if flat[0] == b"r":
            return Reopened(position)
        event = self._watcher.declaration.decode(flat[1]) if flat[0] == b"d" else None
        if event is None:
            self._watcher.stats.undecodable += 1
            return Gap(position)
        return ProgressEntry(position, event, is_last=isinstance(event, self._watcher.declaration.terminal))


class StreamWatcher(Generic[E]):
    """All streams of one declaration that this process watches, on one subscription."""

    def __init__(self, declaration: Progress[E], store: Store) -> None:
        self.declaration = declaration
        self.stats = store[declaration.keyspace].stats
        self._client = store.client(declaration.keyspace.role)
        self.call = self._client.call
        self._channel = store[declaration.wake]
        self._streams: dict[str, WatchedStream[E]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.closed = False
        store.before_close(self.aclose)

    def join(self, key: str) -> WatchedStream[E]:
        """Watch a stream for one more listener."""
        if not self._tasks and not self.closed:
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._receive_wakes(), name="ephemera-progress-wakes"),
                loop.create_task(self._poll(), name="ephemera-progress-polls"),
            ]
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = WatchedStream(self, key)
        stream.listeners += 1
        return stream

    def leave(self, stream: WatchedStream[E]) -> None:
        """Remove a listener; the stream of the last one is no longer watched."""
        stream.listeners -= 1
        if not stream.listeners and self._streams.get(stream.key) is stream:
            del self._streams[stream.key]
            stream.close()

    async def aclose(self) -> None:
        """Stop watching; all listeners end."""
        self.closed = True
        await cancel_all(self._tasks)
        for stream in list(self._streams.values()):
            stream.close()

    async def _receive_wakes(self) -> None:
        while True:
            with suppress(*REDIS_ERRORS):
                async with self._client.subscribe(self._channel.name()) as messages:
                    self._read_all()  # entries added before the server confirmed
                    async for message in messages:
                        if message.lost:
                            self._read_all()
                        elif (
                            stream := self._streams.get(message.data.decode("utf-8", "replace"))
                        ) is not None:
                            stream.read.request()
                    return  # the store was closed
            await asyncio.sleep(_POLL)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(min(_POLL, self.declaration.heartbeat))
            now = monotonic()
            unread = [stream for stream in self._streams.values() if now - stream.read_at >= _POLL]
            if len(unread) > _MAX_POLLS:
                unread = sorted(unread, key=_read_at)[:_MAX_POLLS]
            for stream in unread:
                stream.read.request()
            for stream in list(self._streams.values()):
                stream.tick(now)

    def _read_all(self) -> None:
        for stream in self._streams.values():
            stream.read.request()


def _read_at(stream: WatchedStream[Any]) -> float:
    return stream.read_at
