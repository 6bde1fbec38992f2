"""How a catalogue's events stand on a server: groups, pending entries, dead letters; and replaying those.

A stream without fields is one key; the streams of a pattern with fields are found by SCAN, never more than a
page's work for the server at a time. Nothing is changed but by `replay`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ephemera.errors import InvalidValue, ServerError
from ephemera.keyspace import Catalogue, Store
from ephemera.operations.inspect._finder import Finder
from ephemera.patterns.events import Events
from ephemera.patterns.events._declaration import events_of
from ephemera.patterns.events._entries import DeadLetter
from ephemera.patterns.events._groups import StreamReading, read_stream
from ephemera.wire import Client, open_client

_PAGE = 1000  # dead letters that one command reads
_LETTERS = 100  # dead letters that are put back at a time
_HIDDEN = "(sensitive)"


class PendingEvent(msgspec.Struct, frozen=True):
    """One event that a group was given and has not acknowledged."""

    stream: str
    group: str
    id: str
    consumer: str
    idle: float
    """Seconds since it was delivered or spoken for; a retry is due when it reaches the lease."""
    deliveries: int


class Stream:
    """One stream on a store: how it stands, what failed, and trying that again."""

    def __init__(self, store: Store, events: Events[Any], key: str) -> None:
        self.fields: dict[str, Any] = events.space.parse(key) or {}
        self.events = events
        self.live = store[events]
        self.key, self.dead = events.keys(self.fields)
        self.client: Client = store.client("queue")

    async def reading(self) -> StreamReading:
        """Its length, its groups' lag and pending, its dead letters; one trip."""
        return await read_stream(self.client, self.key, self.dead)

    async def pending(self, group: str, limit: int) -> list[PendingEvent]:
        """The oldest pending events of a group."""
        try:
            found = await self.client.call("XPENDING", self.key, group, "-", "+", limit)
        except ServerError as error:
            if error.code == "NOGROUP":
                return []  # it went meanwhile
            raise
        return [
            PendingEvent(
                self.key,
                group,
                entry_id.decode(),
                consumer.decode("utf-8", "backslashreplace"),
                idle / 1000,
                deliveries,
            )
            for entry_id, consumer, idle, deliveries in found
        ]

    async def letters(self, limit: int) -> list[DeadLetter]:
        """The oldest dead letters; what a sensitive stream's events hold is not shown."""
        found = await self.live.dead(count=limit, **self.fields)
        if not self.events.space.sensitive:
            return found
        return [msgspec.structs.replace(letter, event=_HIDDEN) for letter in found]

    async def replay(
        self,
        ids: Sequence[str],
        tell: Callable[[int, int], None] | None = None,
        *,
        group: str | None = None,
    ) -> int:
        """Put dead letters back: those named, or all there are, perhaps of one group; how many were."""
        named = ids or [
            letter.id async for letter in self._all_letters() if group is None or letter.group == group
        ]
        replayed = 0
        for start in range(0, len(named), _LETTERS):
            replayed += await self.live.replay(named[start : start + _LETTERS], **self.fields)
            if tell is not None:
                tell(min(start + _LETTERS, len(named)), len(named))
        return replayed

    async def _all_letters(self) -> AsyncIterator[DeadLetter]:
        """All dead letters that there are now; those that come meanwhile may be among them."""
        first = "-"
        while page := await self.live.dead(first=first, count=_PAGE, **self.fields):
            for letter in page:
                yield letter
            first = f"({page[-1].id}"
            await asyncio.sleep(0)


async def stream_readings(url: str, catalogue: Catalogue) -> list[StreamReading]:
    """Every stream of events with its groups' lag and pending, by their keys."""
    async with _opened(url, catalogue, None) as streams:
        return [await stream.reading() for stream in streams]


async def pending_events(
    url: str, catalogue: Catalogue, key: str | None = None, limit: int = 100
) -> list[PendingEvent]:
    """The oldest pending events of each group, at most `limit` of a group."""
    async with _opened(url, catalogue, key) as streams:
        return [
            pending
            for stream in streams
            for group in (await stream.reading()).groups
            for pending in await stream.pending(group.name, limit)
        ]


async def dead_letters(
    url: str, catalogue: Catalogue, key: str | None = None, limit: int = 100
) -> list[DeadLetter]:
    """The oldest dead letters of each stream, at most `limit` of a stream; sensitive events are not shown."""
    async with _opened(url, catalogue, key) as streams:
        return [letter for stream in streams for letter in await stream.letters(limit)]


async def replay(
    url: str, catalogue: Catalogue, key: str, ids: list[str], tell: Callable[[int, int], None]
) -> int:
    """Put dead letters of one stream back: those named, or all there are; how many were."""
    async with _opened(url, catalogue, key) as streams:
        (stream,) = streams
        return await stream.replay(ids, tell)


@asynccontextmanager
async def _opened(url: str, catalogue: Catalogue, key: str | None) -> AsyncIterator[list[Stream]]:
    """The streams on a server, or the one of a key."""
    # No `connect`: it would refuse a server that is marked with a name, and an operator knows which it is.
    async with open_client(url) as client:
        store = Store({"cache": client, "queue": client}, catalogue)
        declared = events_of(catalogue)
        if key is not None:
            named = [Stream(store, events, key) for events in declared if events.space.parse(key) is not None]
            if not named:
                patterns = ", ".join(events.space.pattern for events in declared) or "(none is declared)"
                raise InvalidValue("stream", f"the key of a stream of events, by: {patterns}", repr(key))
            yield named
        else:
            yield [
                Stream(store, events, name)
                for events in declared
                for name in await Finder(client, events.space, most=None).all()
            ]
