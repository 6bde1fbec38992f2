"""What a process remembers of revocations: what it made, what it saw, and what others told it. Bounded.

The memory only ever says "revoked". It answers for a token that is known to be revoked without asking
Redis, and it is what a check with the policy `local` has when Redis is away. Others' revocations arrive on
a channel; what was told while this process was not connected is missing here, which is why the memory is
never taken for the whole truth. It forgets by the monotonic clock: a wall clock that jumps changes nothing.

What this process wrote lately is kept as well, to be written again whenever the connection was lost: a master
that died may have taken with it what it had not replicated yet.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, TypeAlias

import msgspec

from ephemera.errors import ConnectionFailed, EphemeraError, ServerError
from ephemera.keyspace import ChannelAccessor
from ephemera.wire import Client

By: TypeAlias = Literal["token", "user", "family"]
"""What a revocation names."""

_RETRY = 1.0  # seconds between attempts to hear of others' revocations
_WRITTEN_AGAIN = (
    300.0  # seconds after which a revocation has been replicated, or its master has been replaced
)
_MOST_WRITTEN = 1000


class News(msgspec.Struct, array_like=True, frozen=True):
    """One revocation: of what, and for users, of what was issued until when."""

    by: By
    kind: str  # of a token: "access" or "refresh"; empty for users and families
    id: str
    before: int = 0  # microseconds since 1970; a user's tokens issued up to then are revoked


class Memory:
    """The newest `most` revocations that have not lapsed: `lives` has the seconds of each kind of token."""

    def __init__(self, most: int, lives: Mapping[str, float], longest: float) -> None:
        self._most = most
        self._lives = lives
        self._longest = longest
        self._known: OrderedDict[tuple[By, str, str], tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, news: News) -> None:
        """Remember a revocation; the oldest goes when there are too many."""
        name = (news.by, news.kind, news.id)
        _, before = self._known.pop(name, (0.0, 0))
        lapses = monotonic() + self._lives.get(news.kind, self._longest)
        self._known[name] = (lapses, max(before, news.before))
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def revoked(self, by: By, kind: str, identity: str, issued: int = 0) -> bool:
        """Whether this is known to be revoked; for a user, whether what was issued then is."""
        known = self._known.get((by, kind, identity))
        if known is None:
            return False
        lapses, before = known
        if lapses < monotonic():
            del self._known[by, kind, identity]
            return False
        return by != "user" or issued <= before


class Written:
    """The revocations that this process has written lately, each with how to write it again."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Callable[[], Awaitable[Any]]]] = deque(maxlen=_MOST_WRITTEN)

    def note(self, again: Callable[[], Awaitable[Any]]) -> None:
        """A revocation was written, and is written again in this way: as often as one likes."""
        self._recent.append((monotonic(), again))

    async def write_again(self) -> None:
        """Write all of it again, the newest first, waiting for the server where need be."""
        for at, write in reversed(tuple(self._recent)):
            while monotonic() - at < _WRITTEN_AGAIN:
                if await _done(write):
                    break
                await asyncio.sleep(_RETRY)


async def _done(write: Callable[[], Awaitable[Any]]) -> bool:
    """Write; False when the server cannot take it now."""
    try:
        await write()
    except (ConnectionFailed, ServerError):
        return False
    except EphemeraError:  # by a clock that has jumped: this process still remembers it
        pass
    return True


class Ear:
    """Hears others' revocations for as long as the store is open."""

    def __init__(
        self, client: Client, channel: ChannelAccessor[News], memory: Memory, written: Written
    ) -> None:
        self._client = client
        self._channel = channel
        self._memory = memory
        self._written = written
        self._tasks: list[asyncio.Task[None]] = []
        self._lost = asyncio.Event()
        self.heard = asyncio.Event()
        """Set once the server has confirmed that news will be heard."""

    def start(self) -> None:
        """Begin to listen, if this has not happened yet; needs a running loop."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            works = (self._listen(), self._make_good())
            self._tasks = [loop.create_task(work, name="ephemera-revocation") for work in works]

    async def stop(self) -> None:
        """Listen no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            with suppress(ConnectionFailed, ServerError):
                async with self._client.subscribe(self._channel.name()) as messages:
                    if self.heard.is_set():
                        self._lost.set()
                    self.heard.set()
                    async for message in messages:
                        if message.lost:
                            self._lost.set()
                        elif (news := self._channel.decode(message.data)) is not None:
                            self._memory.keep(news)
                    return  # the store was closed
            await asyncio.sleep(_RETRY)

    async def _make_good(self) -> None:
        """Write again what this process wrote lately, whenever the connection was lost."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            await self._written.write_again()
