"""A naive feed: Redis alone, no fencing, and whatever is there at the end of a run counts as seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ephemera import Store


async def _nothing() -> None:
    """Do nothing during the run."""


class NaiveFeed:
    """Channels, high-water marks and clusters, under keys of one test."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._call = store.client("queue").call
        self._prefix = prefix

    async def publish(self, channel: str, count: int) -> None:
        """Publish insights, each with the channel's next seq."""
        for _ in range(count):
            seq = await self._call("HINCRBY", f"{self._prefix}:ch:{channel}", "current_seq", 1)
            await self._call("RPUSH", f"{self._prefix}:insights:{channel}", seq)

    async def pending(self, user: str, channel: str) -> int:
        """Return the channel's seq minus what the user has seen; a user without a mark has seen nothing."""
        return await self._current(channel) - await self._seen(user, channel)

    async def enqueue(self, user: str, mark: int) -> bool:
        """Enqueue a user, unless that was done within these milliseconds."""
        return await self._call("SET", f"{self._prefix}:enq:{user}", "1", "NX", "PX", mark) is not None

    async def marked(self, user: str) -> bool:
        """Whether the user is enqueued."""
        return bool(await self._call("EXISTS", f"{self._prefix}:enq:{user}"))

    async def rebuild(
        self, user: str, channel: str, meanwhile: Callable[[], Awaitable[object]] = _nothing
    ) -> int:
        """Cluster what is new, save it as the next version, and mark all there is as seen."""
        new = await self._call(
            "LRANGE", f"{self._prefix}:insights:{channel}", await self._seen(user, channel), -1
        )
        await meanwhile()
        if new:
            await self._call("RPUSH", f"{self._prefix}:clusters:{user}", *new)
        await self._call("HSET", f"{self._prefix}:hwm:{user}", channel, await self._current(channel))
        return int(await self._call("HINCRBY", f"{self._prefix}:us:{user}", "cluster_version", 1))

    async def clustered(self, user: str) -> list[int]:
        """Return everything that was ever clustered for a user."""
        return [int(seq) for seq in await self._call("LRANGE", f"{self._prefix}:clusters:{user}", 0, -1)]

    async def _current(self, channel: str) -> int:
        return int(await self._call("HGET", f"{self._prefix}:ch:{channel}", "current_seq") or 0)

    async def _seen(self, user: str, channel: str) -> int:
        return int(await self._call("HGET", f"{self._prefix}:hwm:{user}", channel) or 0)
