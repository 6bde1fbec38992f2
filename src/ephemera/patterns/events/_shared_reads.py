"""One connection on which all consumers of a process wait for new events of their streams.

A consumer that waits alone waits in XREADGROUP, on a dedicated connection, and gets its events with the
reply. All others wait in one XREAD on all their streams, on a second connection; when a stream has news, its
consumers read them on the shared connection. XREAD delivers nothing, so it may end at any time: one more
consumer that has to wait ends it by an entry on a stream of the process's own, and it starts again with one
stream more. On a cluster, only streams of one slot can share an XREAD.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from ephemera._futures import discard
from ephemera.errors import EphemeraError
from ephemera.keyspace import Store
from ephemera.patterns.events._group_member import BLOCK, ConsumerGroupMember, NewEntry, OrderedGroupMember
from ephemera.wire import Client, Script, key_slot

RING = Script.load("ephemera.patterns.events", "ring")

BELL_LIFETIME = 60_000
"""Milliseconds for which the stream that ends an XREAD exists."""
_TOO_MANY = 0.05  # seconds until a stream is read again that has too many unfinished events
_START = b"0-0"


class SharedReads:
    """The reads of all consumers on one client."""

    def __init__(self, client: Client) -> None:
        self.reader = secrets.token_hex(8)
        """Names the streams that end an XREAD of this process."""
        self._client = client
        self._bells: dict[int | None, Doorbell] = {}
        self._alone: set[int | None] = set()

    async def read(
        self, member: ConsumerGroupMember, bell: Callable[[str], str], count: int
    ) -> list[NewEntry]:
        """New entries of a stream; may return none after it has waited for them."""
        slot = key_slot(member.key) if self._client.is_cluster else None
        if slot not in self._alone and not isinstance(member, OrderedGroupMember):
            self._alone.add(slot)
            try:
                return await member.read(count, block=True)
            finally:
                self._alone.discard(slot)
        # Sent before the read: if that returns nothing, the group has everything up to this entry.
        newest = asyncio.ensure_future(self._client.call("XREVRANGE", member.key, "+", "-", "COUNT", 1))
        discard(newest)
        entries = await member.read(count, block=False)
        if isinstance(member, OrderedGroupMember) and member.successors.too_many:
            await asyncio.sleep(_TOO_MANY)
        elif not entries:
            found = await newest
            if slot not in self._bells:
                self._bells[slot] = Doorbell(self._client, bell(self.reader))
            await self._bells[slot].wait(member.key, found[0][0] if found else _START)
        return entries


class Doorbell:
    """One XREAD for all streams that consumers wait for."""

    def __init__(self, client: Client, own: str) -> None:
        self._client = client
        self._own = own
        self._last_ring = _START
        self._waiting: dict[asyncio.Future[None], tuple[str, bytes]] = {}
        self._task: asyncio.Task[None] | None = None
        self._rings: asyncio.Future[Any] | None = None
        self._reader: asyncio.Task[None] | None = None  # the task whose XREAD is under way

    async def wait(self, key: str, last: bytes) -> None:
        """Wait until a stream may have entries after an id, or some seconds have passed."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = (key, last)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="ephemera-events-wait")
        elif self._reader is self._task and self._rings is None:
            self._rings = asyncio.ensure_future(self._ring())
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)
            if not self._waiting and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _ring(self) -> None:
        try:
            await self._client.run(RING, (self._own,), (BELL_LIFETIME,))
        except EphemeraError as problem:
            self._release(set(), problem)

    async def _run(self) -> None:
        """Read until no consumer waits."""
        try:
            while self._waiting:
                await asyncio.sleep(0)  # consumers that begin to wait in the same tick share the read
                self._release(await self._read(), None)
        except EphemeraError as problem:
            self._release(set(), problem)
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _read(self) -> set[str] | None:
        """The streams that may have news; None if the time is over."""
        last: dict[str, bytes] = {}
        for key, after in self._waiting.values():
            last[key] = min(after, last.get(key, after), key=_order)
        reader = asyncio.current_task()
        self._reader, self._rings = reader, None
        try:
            found = await self._client.call(
                "XREAD",
                "COUNT",
                1,
                "BLOCK",
                BLOCK,
                "STREAMS",
                self._own,
                *last,
                self._last_ring,
                *last.values(),
            )
        finally:
            if self._reader is reader:  # a cancelled task may end after its successor has begun to read
                self._reader = None
        if not found:
            return None
        for entry_id, _ in found.pop(self._own.encode(), ()):
            self._last_ring = entry_id
        return {key.decode() for key in found}

    def _release(self, keys: set[str] | None, problem: EphemeraError | None) -> None:
        """Wake the consumers of some streams, or all of them."""
        for waiter, (key, _) in self._waiting.items():
            if waiter.done() or not (problem or keys is None or key in keys):
                continue
            if problem is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(problem)


class SharedReadsOf:
    """The declaration by which a store has one `SharedReads`."""

    def bind(self, store: Store) -> SharedReads:
        """The reads of a store."""
        return SharedReads(store.client("queue"))


SHARED_READS = SharedReadsOf()


def _order(entry_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split(b"-")))
