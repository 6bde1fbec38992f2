"""What Redis keeps of the truth: marks of dirty channels, and copies of channels, users and their marks.

Copies are made by whoever finds them missing, and changed only where they are there, always forward. One
that is wrong all the same (a write that did not arrive) errs on the side of more novelty, so a worker
looks, finds nothing, and drops it.
Many keys are one trip: all commands of a batch leave in one write, on a cluster in one a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ephemera.keyspace import RecordCodec, Store
from ephemera.patterns.planner._plans import Facts
from ephemera.patterns.planner._queries import UserRow
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.patterns.planner._declaration import ChannelState, Planner, UserState

MARK = Script.load("ephemera.patterns.planner", "mark")
SETTLE = Script.load("ephemera.patterns.planner", "settle")
RAISE = Script.load("ephemera.patterns.planner", "raise")
ADVANCE = Script.load("ephemera.patterns.planner", "advance")
TOUCH = Script.load("ephemera.patterns.planner", "touch")

_AT_ONCE = 1000  # channels that one script marks or removes


class Copies:
    """The planner's keys on one store."""

    def __init__(self, declared: Planner, store: Store) -> None:
        self._declared = declared
        self._cache, self._queue = store.client("cache"), store.client("queue")
        self._users, self._dirty = store[declared.users], store[declared.dirty]
        self._enqueued = store[declared.enqueued]
        self._dirty_key = self._dirty.key()
        self._dirty_life = declared.dirty.lifetime.milliseconds or 0
        self._life = declared.marks.lifetime.milliseconds or 0
        self._channel_codec = cast("RecordCodec[ChannelState]", declared.channels.codec)
        self._user_codec = cast("RecordCodec[UserState]", declared.users.codec)
        self._channel_type, self._user_type = self._channel_codec.struct, self._user_codec.struct

    @property
    def up(self) -> bool:
        """Whether both servers take calls."""
        return self._cache.up and self._queue.up

    @property
    def connects(self) -> int:
        """How often the server of the dirty channels was connected to."""
        return self._queue.connects

    # Channels

    async def note(self, channels: Sequence[tuple[str, int, int]]) -> None:
        """Mark channels (id, current seq, time of the last) as dirty, and move their copies forward."""
        names = [channel for channel, _, _ in channels]
        marking = [
            self._queue.run(MARK, (self._dirty_key,), (self._dirty_life, *names[at : at + _AT_ONCE]))
            for at in range(0, len(names), _AT_ONCE)
        ]
        await in_one_trip([*marking, *(self._raising(*channel) for channel in channels)])

    async def raise_channels(self, seqs: Mapping[str, int]) -> None:
        """Move the copies of channels forward."""
        await in_one_trip(self._raising(channel, seq, 0) for channel, seq in seqs.items())

    def _raising(self, channel: str, seq: int, at: int) -> Awaitable[Any]:
        state = self._channel_type(seq, at)
        key = self._declared.channels.key(channel_id=channel)
        return self._cache.run(RAISE, (key,), (self._life, seq, *self._channel_codec.encode(state)))

    async def dirty(self, most: int) -> dict[str, float]:
        """At most so many dirty channels with their marks, those marked longest ago first."""
        return dict(await self._dirty.range(0, most - 1))

    async def settle(self, dirty: Mapping[str, float]) -> int:
        """Remove channels that were not marked again; how many were removed."""
        flat = [part for name, mark in dirty.items() for part in (name, f"{mark:.0f}")]
        size = 2 * _AT_ONCE
        calls = (
            self._queue.run(SETTLE, (self._dirty_key,), flat[at : at + size])
            for at in range(0, len(flat), size)
        )
        return sum(await in_one_trip(calls))

    async def seqs(self, channels: Collection[bytes]) -> dict[bytes, int]:
        """The current seqs of those channels that are kept here."""
        key = self._declared.channels.template.render
        call = self._cache.call
        names = list(channels)
        replies = await in_one_trip(
            call("HGET", key({"channel_id": name.decode()}), "current_seq") for name in names
        )
        return {name: int(seq) for name, seq in zip(names, replies, strict=True) if seq and seq.isdigit()}

    # Users

    async def users(self, users: Sequence[str]) -> list[UserState | None]:
        """The states of users, None where there is none; one trip."""
        return await self._users.get_many([{"user_id": user} for user in users])

    async def marks(self, users: Sequence[str]) -> list[dict[bytes, bytes]]:
        """The high-water marks of users, empty where there are none; one trip."""
        render, call = self._declared.marks.template.render, self._cache.call
        return await in_one_trip(call("HGETALL", render({"user_id": user})) for user in users)

    async def handed_over(self, users: Collection[str], at: int) -> None:
        """Mark users as handed over, also in their states where those are kept; one trip."""
        marking = [self._enqueued.set(user_id=user) for user in users]
        await in_one_trip([*marking, self.stamp(users, last_enqueued_at=at)])

    async def stamp(self, users: Iterable[str], **changes: int | str) -> None:
        """Change fields of users whose states are kept; one trip."""
        await in_one_trip([self._users.update(changes, user_id=user) for user in users])

    async def unmark(self, users: Iterable[str]) -> None:
        """Remove the marks of users who were handed over."""
        await self._enqueued.delete_many([{"user_id": user} for user in users])

    async def keep(self, rows: Mapping[str, UserRow], marks: Mapping[str, Mapping[str, int]]) -> None:
        """Keep users and their high-water marks, as SQL has them."""
        states = []
        for user, (facts, version) in rows.items():
            at = (facts.last_clustered_at, facts.last_active_at, facts.last_enqueued_at)
            state = self._user_type(facts.plan, version, 0, *at, facts.last_active_at)
            states.append(({"user_id": user}, state))
        calls = [self._advancing(user, seqs, self._life) for user, seqs in marks.items() if seqs]
        await in_one_trip([self._users.put_many(states), *calls])

    async def clustered(self, user: str, seqs: Mapping[str, int], **changes: int) -> None:
        """Move a user's marks and their channels forward, change their state, and end the dedup mark."""
        calls: list[Awaitable[Any]] = [self._raising(channel, seq, 0) for channel, seq in seqs.items()]
        if seqs:
            calls.append(self._advancing(user, seqs))
        if changes:
            calls.append(self._users.update(changes, user_id=user))
        await in_one_trip([*calls, self._enqueued.delete(user_id=user)])

    async def subscribed(self, user: str, channel: str, seq: int) -> None:
        """Add a channel to the marks that are kept of a user."""
        await self._advancing(user, {channel: seq})

    async def unsubscribed(self, user: str, channel: str) -> None:
        """Take a channel out of the marks that are kept of a user."""
        await self._cache.call("HDEL", self._declared.marks.key(user_id=user), channel)

    async def drop(self, user: str) -> None:
        """Forget what is kept of a user."""
        marks, state = self._declared.marks.key(user_id=user), self._declared.users.key(user_id=user)
        mark = self._declared.enqueued.key(user_id=user)
        await in_one_trip(
            [
                self._cache.call("UNLINK", marks),
                self._cache.call("UNLINK", state),
                self._queue.call("UNLINK", mark),
            ]
        )

    async def touch(self, user: str) -> bool:
        """Note that a user is active; whether SQL should hear of it."""
        key = self._declared.users.key(user_id=user)
        seldom = self._declared.touch_every
        return bool(await self._cache.run(TOUCH, (key,), (self._user_codec.shape, seldom)))

    def _advancing(self, user: str, seqs: Mapping[str, int], life: int | None = None) -> Awaitable[Any]:
        flat = [part for channel, seq in seqs.items() for part in (channel, seq)]
        key = self._declared.marks.key(user_id=user)
        return self._cache.run(ADVANCE, (key,), ("" if life is None else life, *flat))


def facts_of(state: UserState, pending: int) -> Facts:
    """The facts of a user whose state is kept."""
    return Facts(state.plan, pending, state.last_clustered_at, state.last_active_at, state.last_enqueued_at)


async def in_one_trip(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The replies to calls that are all issued before the first is waited for."""
    issued: list[asyncio.Future[Any]] = []
    try:
        issued.extend(map(asyncio.ensure_future, calls))
        return [await each for each in issued]
    except BaseException:
        for each in issued:
            if not each.cancel() and not each.cancelled():
                each.exception()
        raise
