"""What a process remembers of revocations: what it made, what it saw, and what others told it. Bounded.

The memory only ever says "revoked". It answers for a token that is known to be revoked without asking
Redis, and it is what a check with the policy `local` has when Redis is away. Others' revocations arrive on
a channel; what was told while this process was not connected is missing here, which is why the memory is
never taken for the whole truth.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ephemera.errors import ConnectionFailed, ServerError

if TYPE_CHECKING:
    from ephemera.keyspace import ChannelAccess
    from ephemera.wire import Client

By: TypeAlias = Literal["token", "user", "family"]
"""What a revocation names."""

_RETRY = 1.0  # seconds between attempts to hear of others' revocations


class News(msgspec.Struct, array_like=True, frozen=True):
    """One revocation: of what, until when it matters (seconds since 1970), and for users, since when."""

    by: By
    kind: str  # of a token: "access" or "refresh"; empty for users and families
    id: str
    until: float
    before: int = 0  # microseconds since 1970; a user's tokens issued up to then are revoked


class Memory:
    """The newest `most` revocations that have not lapsed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[tuple[By, str, str], tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, news: News) -> None:
        """Remember a revocation; the oldest goes when there are too many."""
        name = (news.by, news.kind, news.id)
        until, before = self._known.pop(name, (0.0, 0))
        self._known[name] = (max(until, news.until), max(before, news.before))
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def revoked(self, by: By, kind: str, identity: str, issued: int = 0) -> bool:
        """Whether this is known to be revoked; for a user, whether what was issued then is."""
        known = self._known.get((by, kind, identity))
        if known is None:
            return False
        until, before = known
        if until < time.time():
            del self._known[by, kind, identity]
            return False
        return by != "user" or issued <= before


class Ear:
    """Hears others' revocations for as long as the store is open."""

    def __init__(self, client: Client, channel: ChannelAccess[News], memory: Memory) -> None:
        self._client = client
        self._channel = channel
        self._memory = memory
        self._listening: asyncio.Task[None] | None = None
        self.heard = asyncio.Event()
        """Set once the server has confirmed that news will be heard."""

    def start(self) -> None:
        """Begin to listen, if this has not happened yet; needs a running loop."""
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(
                self._listen(), name="ephemera-revocation"
            )

    async def stop(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening

    async def _listen(self) -> None:
        while True:
            with suppress(ConnectionFailed, ServerError):
                async with self._client.subscribe(self._channel.name()) as messages:
                    self.heard.set()
                    async for message in messages:
                        news = None if message.lost else self._channel.decode(message.data)
                        if news is not None:
                            self._memory.keep(news)
                    return  # the store was closed
            await asyncio.sleep(_RETRY)
