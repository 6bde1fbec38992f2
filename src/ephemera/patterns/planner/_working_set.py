"""The working set in Redis: dirty channels, and cached channels, users and high-water marks.

Cached data is created by the reader that misses it, changed only where it exists, and always forward. If it
is wrong all the same (a write was lost), it errs on the side of more novelty: a worker recounts, finds
nothing, and evicts it. Operations on many keys are one round trip: all commands of a batch are sent in one
write, on a cluster in one per node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import msgspec

from ephemera._futures import discard
from ephemera._stored_numbers import stored_int
from ephemera.keyspace import RECORD_LAYOUT, Catalogue, RecordCodec, Store, fixed, sliding
from ephemera.patterns.locks import Locks
from ephemera.patterns.planner._queries import UserRow
from ephemera.patterns.planner._tick import ENQUEUED_MS, UserFacts
from ephemera.wire import Script

MARK_DIRTY = Script.load("ephemera.patterns.planner", "mark_dirty")
CLEAR_DIRTY = Script.load("ephemera.patterns.planner", "clear_dirty")
ADVANCE_CHANNEL = Script.load("ephemera.patterns.planner", "advance_channel")
ADVANCE_MARKS = Script.load("ephemera.patterns.planner", "advance_marks")
TOUCH = Script.load("ephemera.patterns.planner", "touch")

_CACHED = timedelta(days=2)
_DIRTY = timedelta(days=7)
_PER_SCRIPT = 1000  # channels that one script marks or clears


class ChannelState(msgspec.Struct):
    """A channel as `ch:{channel_id}` has it."""

    current_seq: int
    last_ts: int  # milliseconds since 1970, as all times here


class UserState(msgspec.Struct):
    """A user as `us:{user_id}` has them."""

    plan: str
    cluster_version: int
    pending: int  # insights left over when the user was last clustered
    last_clustered_at: int
    last_active_at: int
    last_enqueued_at: int
    activity_saved_at: int  # when the user's activity was last written to SQL


class PlannerKeys:
    """The planner's keyspaces and locks; with a name, it is their prefix."""

    def __init__(self, catalogue: Catalogue, lease: timedelta, name: str | None = None) -> None:
        prefix = f"{name}:" if name else ""
        cached = fixed(seconds=_CACHED.total_seconds())
        self.channels = catalogue.hash(
            f"{prefix}ch:{{channel_id}}",
            ChannelState,
            lifetime=cached,
            purpose="How many insights a channel has had",
            saves="a SQL read for each channel at each tick",
            if_lost="read from SQL and cached again",
        )
        self.marks = catalogue.mapping(
            f"{prefix}hwm:{{user_id}}",
            int,
            lifetime=cached,
            purpose="Up to which seq of each channel a user was clustered",
            saves="a SQL join for each user at each tick",
            invalidated_by=("a recount that finds it wrong",),
            if_lost="read from SQL and cached again",
        )
        self.users = catalogue.hash(
            f"{prefix}us:{{user_id}}",
            UserState,
            lifetime=cached,
            purpose="When a user was active, clustered and enqueued",
            saves="a SQL write for each sign of activity",
            invalidated_by=("a recount that finds it wrong",),
            if_lost="read from SQL and cached again",
        )
        self.dirty = catalogue.sorted_set(
            f"{prefix}dirty:channels",
            str,
            lifetime=sliding(seconds=_DIRTY.total_seconds(), outlives="a tick, every minute at least"),
            role="queue",
            purpose="Channels with insights that no tick has examined",
            saves="examining all channels",
            invalidated_by=("the tick that examined it",),
            if_lost="rebuilt from the channels' last insights",
        )
        self.enqueued = catalogue.flag(
            f"{prefix}enq:user:{{user_id}}",
            lifetime=fixed(seconds=ENQUEUED_MS / 1000, outlives="the user's wait in the queue"),
            role="queue",
            purpose="A user is enqueued",
            saves="asking SQL whether a user is enqueued",
            invalidated_by=("the end of the worker's run",),
            if_lost="SQL has the same mark",
        )
        self.user_lock = Locks(
            catalogue, f"{prefix}lock:user:{{user_id}}", lease=lease, purpose="One worker per user's clusters"
        )
        self.tick_lock = Locks(
            catalogue,
            f"{prefix}lock:planner",
            lease=timedelta(seconds=30),
            purpose="One planner ticks at a time",
        )


class WorkingSet:
    """The planner's keys on one store; `touch_every` is in milliseconds."""

    def __init__(self, keys: PlannerKeys, touch_every: int, store: Store) -> None:
        self._keys = keys
        self._touch_every = touch_every
        self._cache, self._queue = store.client("cache"), store.client("queue")
        self._users, self._dirty = store[keys.users], store[keys.dirty]
        self._enqueued = store[keys.enqueued]
        for cached in (keys.channels, keys.marks):
            store[cached]  # refuses a store without it
        self._dirty_key = self._dirty.key()
        self._dirty_ttl = keys.dirty.lifetime.milliseconds or 0
        self._ttl = keys.marks.lifetime.milliseconds or 0
        self._channel_codec = cast("RecordCodec[ChannelState]", keys.channels.codec)
        self._user_codec = cast("RecordCodec[UserState]", keys.users.codec)
        self._channel_type, self._user_type = self._channel_codec.record, self._user_codec.record

    @property
    def is_up(self) -> bool:
        """Whether both servers accept calls."""
        return self._cache.up and self._queue.up

    @property
    def connection_count(self) -> int:
        """How often the server of the dirty channels was connected to."""
        return self._queue.connection_count

    # Channels

    async def mark_dirty(self, channels: Sequence[tuple[str, int, int]]) -> None:
        """Mark channels (id, current seq, time of the last insight) as dirty, and advance their states."""
        names = [channel for channel, _, _ in channels]
        marks = [
            self._queue.run(MARK_DIRTY, (self._dirty_key,), (self._dirty_ttl, *names[at : at + _PER_SCRIPT]))
            for at in range(0, len(names), _PER_SCRIPT)
        ]
        await pipelined([*marks, *(self._advance_channel(*channel) for channel in channels)])

    async def advance_channels(self, seqs: Mapping[str, int]) -> None:
        """Advance the states of channels."""
        await pipelined(self._advance_channel(channel, seq, 0) for channel, seq in seqs.items())

    def _advance_channel(self, channel: str, seq: int, at: int) -> Awaitable[Any]:
        state = self._channel_type(seq, at)
        key = self._keys.channels.key(channel_id=channel)
        return self._cache.run(ADVANCE_CHANNEL, (key,), (self._ttl, seq, *self._channel_codec.encode(state)))

    async def dirty(self, limit: int) -> dict[str, float]:
        """Return at most `limit` dirty channels with their marks, the oldest marks first."""
        return dict(await self._dirty.range(0, limit - 1))

    async def clear_dirty(self, dirty: Mapping[str, float]) -> int:
        """Remove channels that were not marked again; return how many were removed."""
        flat = [part for name, mark in dirty.items() for part in (name, f"{mark:.0f}")]
        size = 2 * _PER_SCRIPT
        calls = (
            self._queue.run(CLEAR_DIRTY, (self._dirty_key,), flat[at : at + size])
            for at in range(0, len(flat), size)
        )
        return sum(await pipelined(calls))

    async def seqs(self, channels: Collection[bytes]) -> dict[bytes, int]:
        """Return the current seqs of the cached ones among these channels."""
        key = self._keys.channels.template.render
        call = self._cache.call
        names = list(channels)
        replies = await pipelined(
            call("HGET", key({"channel_id": name.decode()}), "current_seq") for name in names
        )
        found = zip(names, map(stored_int, replies), strict=True)
        return {name: seq for name, seq in found if seq is not None and seq >= 0}

    # Users

    async def users(self, users: Sequence[str]) -> list[UserState | None]:
        """Return the states of users, None where none is cached, in one round trip."""
        return await self._users.get_many([{"user_id": user} for user in users])

    async def high_water_marks(self, users: Sequence[str]) -> list[dict[bytes, bytes]]:
        """Return the high-water marks of users, empty where none are cached, in one round trip."""
        render, call = self._keys.marks.template.render, self._cache.call
        return await pipelined(call("HGETALL", render({"user_id": user})) for user in users)

    async def mark_enqueued(self, users: Collection[str], at: int) -> None:
        """Mark users as enqueued, and update their cached states, in one round trip."""
        marks = [self._enqueued.set(user_id=user) for user in users]
        await pipelined([*marks, self.update_users(users, last_enqueued_at=at)])

    async def update_users(self, users: Iterable[str], **changes: int | str) -> None:
        """Change fields of cached users, in one round trip."""
        await pipelined([self._users.update(changes, user_id=user) for user in users])

    async def clear_enqueued(self, users: Iterable[str]) -> None:
        """Remove the marks of enqueued users."""
        await self._enqueued.delete_many([{"user_id": user} for user in users])

    async def cache_users(self, rows: Mapping[str, UserRow], marks: Mapping[str, Mapping[str, int]]) -> None:
        """Cache users and their high-water marks as SQL has them."""
        states = []
        for user, (facts, version) in rows.items():
            at = (facts.last_clustered_at, facts.last_active_at, facts.last_enqueued_at)
            state = self._user_type(facts.plan, version, 0, *at, facts.last_active_at)
            states.append(({"user_id": user}, state))
        calls = [self._advance_marks(user, seqs, self._ttl) for user, seqs in marks.items() if seqs]
        await pipelined([self._users.put_many(states), *calls])

    async def record_rebuild(self, user: str, seqs: Mapping[str, int], **changes: int) -> None:
        """Advance a user's marks and channels, change their state, and remove their enqueued mark."""
        calls: list[Awaitable[Any]] = [self._advance_channel(name, seq, 0) for name, seq in seqs.items()]
        if seqs:
            calls.append(self._advance_marks(user, seqs))
        if changes:
            calls.append(self._users.update(changes, user_id=user))
        await pipelined([*calls, self._enqueued.delete(user_id=user)])

    async def add_subscription(self, user: str, channel: str, seq: int) -> None:
        """Add a channel to the cached marks of a user."""
        await self._advance_marks(user, {channel: seq})

    async def remove_subscription(self, user: str, channel: str) -> None:
        """Remove a channel from the cached marks of a user."""
        await self._cache.call("HDEL", self._keys.marks.key(user_id=user), channel)

    async def evict_user(self, user: str) -> None:
        """Remove everything that is cached of a user."""
        marks, state = self._keys.marks.key(user_id=user), self._keys.users.key(user_id=user)
        mark = self._keys.enqueued.key(user_id=user)
        await pipelined(
            [
                self._cache.call("UNLINK", marks),
                self._cache.call("UNLINK", state),
                self._queue.call("UNLINK", mark),
            ]
        )

    async def touch(self, user: str) -> bool:
        """Record that a user is active; return whether SQL is due for an update."""
        key = self._keys.users.key(user_id=user)
        return bool(await self._cache.run(TOUCH, (key,), (RECORD_LAYOUT, self._touch_every)))

    def _advance_marks(self, user: str, seqs: Mapping[str, int], ttl: int | None = None) -> Awaitable[Any]:
        flat = [part for channel, seq in seqs.items() for part in (channel, seq)]
        key = self._keys.marks.key(user_id=user)
        return self._cache.run(ADVANCE_MARKS, (key,), ("" if ttl is None else ttl, *flat))


def facts_of(state: UserState, pending: int) -> UserFacts:
    """Return the facts of a user whose state is cached."""
    times = (state.last_clustered_at, state.last_active_at, state.last_enqueued_at)
    return UserFacts(state.plan, pending, *times)


async def pipelined(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """Issue all calls before awaiting the first, and return their replies."""
    issued: list[asyncio.Future[Any]] = []
    try:
        issued.extend(map(asyncio.ensure_future, calls))
        return [await each for each in issued]
    except BaseException:
        for each in issued:
            each.cancel()
            discard(each)
        raise
