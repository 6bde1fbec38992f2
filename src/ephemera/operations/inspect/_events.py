"""The event streams of a catalogue on a server: groups, pending events, dead letters; and their replay.

A stream without fields is one key; the streams of a pattern with fields are found by SCAN, in pages that keep
the server busy for less than a millisecond each. Only the replays change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec

from ephemera.errors import InvalidValue, ServerError
from ephemera.keyspace import Catalogue, Store
from ephemera.operations.inspect._key_finder import KeyFinder
from ephemera.patterns.events import DeadLetter, Events, IdleTime, ReplayedEvents, StreamInfo
from ephemera.wire import Client, open_client

_PAGE = 1000  # dead letters read by one command
_REPLAY_BATCH = 100  # dead letters replayed at a time
_HIDDEN = "(sensitive)"


class PendingEvent(msgspec.Struct, frozen=True):
    """One event that was delivered to a group and is not acknowledged."""

    stream: str
    group: str
    id: str
    consumer: str
    idle: float
    """Seconds since its consumer's last heartbeat; after a lease another one claims it."""
    deliveries: int
    retry_in: float | None = None
    """Seconds until its retry is due; None if it is being handled."""


class EventStream:
    """One stream on a store: its state, its dead letters, and their replay."""

    def __init__(self, store: Store, events: Events[Any], key: str) -> None:
        self.fields: dict[str, Any] = events.keyspace.template.parse_text(key) or {}
        self.events = events
        self._bound = store[events]
        self.key = events.keys(self.fields).stream
        self.client: Client = store.client("queue")

    async def info(self) -> StreamInfo:
        """Its length, its groups' lag and pending events, its dead letters; one round trip."""
        return await self._bound.info(**self.fields)

    async def pending(self, group: str, limit: int) -> list[PendingEvent]:
        """The oldest pending events of a group."""
        try:
            found = await self.client.call("XPENDING", self.key, group, "-", "+", limit)
        except ServerError as error:
            if error.code == "NOGROUP":
                return []  # the group has been deleted since
            raise
        pending = []
        for entry_id, consumer, milliseconds, deliveries in found:
            name, state = consumer.decode("utf-8", "backslashreplace"), IdleTime.decode(milliseconds)
            known = (self.key, group, entry_id.decode(), name, state.idle, deliveries, state.retry_in)
            pending.append(PendingEvent(*known))
        return pending

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        """The oldest dead letters; events of a sensitive stream are hidden."""
        found = await self._bound.dead_letters(count=limit, **self.fields)
        if not self.events.keyspace.sensitive:
            return found
        return [msgspec.structs.replace(letter, event=_HIDDEN) for letter in found]

    async def replay(
        self,
        ids: Sequence[str],
        on_progress: Callable[[int, int], None] | None = None,
        *,
        group: str | None = None,
    ) -> int:
        """Replay these dead letters, or all (of one group, if given); returns how many were replayed."""
        named = ids or [
            letter.id async for letter in self._all_letters() if group is None or letter.group == group
        ]
        replayed = 0
        for start in range(0, len(named), _REPLAY_BATCH):
            replayed += await self._bound.replay(named[start : start + _REPLAY_BATCH], **self.fields)
            if on_progress is not None:
                on_progress(min(start + _REPLAY_BATCH, len(named)), len(named))
        return replayed

    async def replay_since(
        self, group: str, bounds: tuple[datetime | str, datetime | str | None], limit: int, *, again: bool
    ) -> ReplayedEvents:
        """Replay handled events to a group, from a time or an id on."""
        since, until = bounds
        return await self._bound.replay_since(
            group, since, until=until, limit=limit, again=again, **self.fields
        )

    async def _all_letters(self) -> AsyncIterator[DeadLetter]:
        """All dead letters; some that are added in the meantime may be included."""
        first = "-"
        while page := await self._bound.dead_letters(first=first, count=_PAGE, **self.fields):
            for letter in page:
                yield letter
            first = f"({page[-1].id}"
            await asyncio.sleep(0)


async def stream_infos(url: str, catalogue: Catalogue) -> list[StreamInfo]:
    """Every event stream with its groups' lag and pending events, sorted by key."""
    async with _open_streams(url, catalogue, None) as streams:
        return [await stream.info() for stream in streams]


async def pending_events(
    url: str, catalogue: Catalogue, key: str | None = None, limit: int = 100
) -> list[PendingEvent]:
    """The oldest pending events of each group, at most `limit` per group."""
    async with _open_streams(url, catalogue, key) as streams:
        return [
            pending
            for stream in streams
            for group in (await stream.info()).groups
            for pending in await stream.pending(group.name, limit)
        ]


async def dead_letters(
    url: str, catalogue: Catalogue, key: str | None = None, limit: int = 100
) -> list[DeadLetter]:
    """The oldest dead letters of each stream, at most `limit` per stream; sensitive events are hidden."""
    async with _open_streams(url, catalogue, key) as streams:
        return [letter for stream in streams for letter in await stream.dead_letters(limit)]


async def replay_dead_letters(
    url: str, catalogue: Catalogue, key: str, ids: list[str], on_progress: Callable[[int, int], None]
) -> int:
    """Replay dead letters of one stream: these, or all; returns how many were replayed."""
    async with _open_streams(url, catalogue, key) as streams:
        (stream,) = streams
        return await stream.replay(ids, on_progress)


async def replay_events(
    url: str,
    catalogue: Catalogue,
    key: str,
    group: str,
    bounds: tuple[datetime | str, datetime | str | None],
    *,
    limit: int = 10_000,
    again: bool = False,
) -> ReplayedEvents:
    """Replay handled events of one stream to a group: from a time or an id, to another if it is not None."""
    async with _open_streams(url, catalogue, key) as streams:
        (stream,) = streams
        return await stream.replay_since(group, bounds, limit, again=again)


@asynccontextmanager
async def _open_streams(url: str, catalogue: Catalogue, key: str | None) -> AsyncIterator[list[EventStream]]:
    """The streams on a server, or the one with this key."""
    # Not `connect`: it refuses a server marked with another name, and the operator chose this one.
    async with open_client(url) as client:
        store = Store({"cache": client, "queue": client}, catalogue)
        declared = [each for each in catalogue.patterns if isinstance(each, Events)]
        if key is not None:
            named = [
                EventStream(store, events, key)
                for events in declared
                if events.keyspace.parse(key) is not None
            ]
            if not named:
                patterns = ", ".join(events.keyspace.pattern for events in declared) or "(none is declared)"
                raise InvalidValue("stream", f"the key of an event stream, by one of: {patterns}", repr(key))
            yield named
        else:
            yield [
                EventStream(store, events, name)
                for events in declared
                for name in await KeyFinder(client, events.keyspace, limit=None).find_all()
            ]
