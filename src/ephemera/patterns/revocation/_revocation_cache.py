"""The revocations that a process knows: its own, those it saw, and those that others published. Bounded.

The cache only ever says "revoked". It answers for a token that is known to be revoked without a round trip,
and serves checks with the policy `local` while Redis is down. Others' revocations arrive on a channel; those
published while this process was disconnected are missing, so the cache is never taken as complete. Entries
expire by the monotonic clock, so a wall clock that jumps changes nothing.

Recent writes of this process are kept as well, and are repeated whenever the connection was lost: a master
that died may have lost what it had not replicated yet.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, TypeAlias

import msgspec

from ephemera._futures import cancel_all
from ephemera.errors import EphemeraError
from ephemera.keyspace import REDIS_ERRORS, ChannelAccessor
from ephemera.patterns._server_clock import ServerClock
from ephemera.wire import Client

RevokedBy: TypeAlias = Literal["token", "user", "family"]
"""What a revocation names."""

Write: TypeAlias = Callable[[], Awaitable[Any]]

_RETRY_AFTER = 1.0  # seconds between attempts to subscribe
_REPLAY_WINDOW = 300.0  # seconds after which a write was replicated, or its master was replaced
_MAX_RECENT_WRITES = 1000


class RevocationEvent(msgspec.Struct, array_like=True, frozen=True):
    """One revocation: of what, and for a user, of tokens issued up to when."""

    by: RevokedBy
    kind: str  # of a token: "access" or "refresh"; empty for users and families
    id: str
    issued_until: int = 0  # microseconds since 1970; a user's tokens issued up to then are revoked


class RevocationCache:
    """The newest `size` revocations; `lifetimes` has the seconds of each kind of token."""

    def __init__(self, size: int, lifetimes: Mapping[str, float], longest: float) -> None:
        self._size = size
        self._lifetimes = lifetimes
        self._longest = longest
        self._known: OrderedDict[tuple[RevokedBy, str, str], tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, event: RevocationEvent) -> None:
        """Remember a revocation; the oldest is dropped when there are too many."""
        name = (event.by, event.kind, event.id)
        _, issued_until = self._known.pop(name, (0.0, 0))
        expires = monotonic() + self._lifetimes.get(event.kind, self._longest)
        self._known[name] = (expires, max(issued_until, event.issued_until))
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def is_revoked(self, by: RevokedBy, kind: str, identity: str, issued: int = 0) -> bool:
        """Whether this is known to be revoked; for a user, whether tokens issued then are."""
        known = self._known.get((by, kind, identity))
        if known is None:
            return False
        expires, issued_until = known
        if expires < monotonic():
            del self._known[by, kind, identity]
            return False
        return by != "user" or issued <= issued_until


class RecentWrites:
    """The recent revocations of this process, each with the function that writes it again."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Write]] = deque(maxlen=_MAX_RECENT_WRITES)

    def add(self, write: Write) -> None:
        """Keep a write that may be repeated any number of times."""
        self._recent.append((monotonic(), write))

    async def repeat(self) -> None:
        """Repeat all of them, the newest first, waiting for the server where necessary."""
        for at, write in reversed(tuple(self._recent)):
            while monotonic() - at < _REPLAY_WINDOW:
                if await _try_write(write):
                    break
                await asyncio.sleep(_RETRY_AFTER)


async def _try_write(write: Write) -> bool:
    """Write; False when the server is unavailable."""
    try:
        await write()
    except REDIS_ERRORS:
        return False
    except EphemeraError:  # refused because of a clock that jumped: this process still remembers it
        pass
    return True


class Subscriber:
    """Receives others' revocations for as long as the store is open."""

    def __init__(
        self,
        client: Client,
        channel: ChannelAccessor[RevocationEvent],
        cache: RevocationCache,
        writes: RecentWrites,
        clock: ServerClock,
    ) -> None:
        self._client = client
        self._channel = channel
        self._cache = cache
        self._writes = writes
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._lost = asyncio.Event()
        self.subscribed = asyncio.Event()
        """Set once the server has confirmed the subscription."""

    def start(self) -> None:
        """Subscribe, if this has not happened yet; needs a running loop."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            coroutines = (self._receive(), self._repeat_writes())
            self._tasks = [loop.create_task(each, name="ephemera-revocation") for each in coroutines]

    async def stop(self) -> None:
        """Unsubscribe."""
        await cancel_all(self._tasks)

    async def _receive(self) -> None:
        while True:
            with suppress(*REDIS_ERRORS):
                async with self._client.subscribe(self._channel.name()) as messages:
                    if self.subscribed.is_set():
                        self._lost.set()
                    with suppress(*REDIS_ERRORS):
                        await self._clock.sync()
                    self.subscribed.set()
                    async for message in messages:
                        if message.lost:
                            self._lost.set()
                        elif (event := self._channel.decode(message.data)) is not None:
                            self._cache.add(event)
                    return  # the store was closed
            await asyncio.sleep(_RETRY_AFTER)

    async def _repeat_writes(self) -> None:
        """Repeat recent writes whenever the connection was lost."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            await self._writes.repeat()
