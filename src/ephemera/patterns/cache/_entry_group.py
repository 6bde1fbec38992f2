"""Entries that are replaced together: their loads are taken over, and their values stored in one step.

A group first takes over the loads of all its entries. Whatever is being loaded from before is then refused,
and so is an earlier group with any of them: of two groups the later one stores, and it has loaded after both
changes.

*Atomicity.* All entries are stored, or none. On a cluster this holds for the entries of one slot; the slots
follow each other within a round trip.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ephemera.keyspace import REDIS_ERRORS, Store
from ephemera.patterns.cache._runtime import CacheEngine
from ephemera.patterns.cache._two_level_store import FILL_STAMPED, RENEW
from ephemera.wire import Script, key_slot

if TYPE_CHECKING:
    from ephemera.patterns.cache._declaration import EntryKeys

CLAIM_GROUP = Script.load("ephemera.patterns.cache", "claim_group")

_LEASE = 2000  # milliseconds, renewed while the loads run


class GroupMember(NamedTuple):
    """One entry of a group, of a cache with `Storage(stamped=True)`."""

    engine: CacheEngine[Any]
    keys: EntryKeys


class EntryGroup:
    """Entries of one or several stamped caches of a store."""

    def __init__(self, store: Store, members: Sequence[GroupMember]) -> None:
        client = store.client("cache")
        self._run = client.run
        self._on_cluster = client.is_cluster
        self._members = members

    @asynccontextmanager
    async def claimed(self) -> AsyncIterator[str]:
        """Take over the loads, so that no other load of these entries is stored; yields the claim's token."""
        for engine in {member.engine for member in self._members}:
            await engine.ensure_ready()
        token = secrets.token_hex(12)
        await self._run_by_slot(CLAIM_GROUP, (token, str(_LEASE)), [()] * len(self._members))
        renewal = asyncio.create_task(self._keep_renewing(token))
        try:
            yield token
        finally:
            renewal.cancel()

    async def fill(self, token: str, values: Sequence[Any]) -> bool:
        """Store a value for each entry, None to remove it; False when another group has taken over."""
        fills = [
            member.engine.entries.builder.prepare(member.keys, token, value).arguments
            for member, value in zip(self._members, values, strict=True)
        ]
        return all(await self._run_by_slot(FILL_STAMPED, (), fills))

    async def delete(self) -> None:
        """Remove the entries together, and end their loads."""
        self.drop_local()
        fills = [("", b"", 0, member.keys.channel, -1) for member in self._members]
        await self._run_by_slot(FILL_STAMPED, (), fills)
        self.drop_local()

    def drop_local(self) -> None:
        """Drop the entries of this process."""
        for member in self._members:
            member.engine.drop_local(member.keys.entry)

    async def _run_by_slot(
        self, script: Script, arguments: tuple[Any, ...], of_each: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Run a script on the keys of all entries: once, or on a cluster once for each slot, concurrently."""
        groups: dict[int, list[tuple[EntryKeys, tuple[Any, ...]]]] = defaultdict(list)
        for member, each in zip(self._members, of_each, strict=True):
            slot = key_slot(member.keys.entry) if self._on_cluster else 0
            groups[slot].append((member.keys, each))
        return await asyncio.gather(
            *(
                self._run(
                    script,
                    [key for keys, _ in group for key in keys[:2]],
                    [*arguments, *(argument for _, each in group for argument in each)],
                )
                for group in groups.values()
            )
        )

    async def _keep_renewing(self, token: str) -> None:
        while True:
            await asyncio.sleep(_LEASE / 3000)
            with suppress(*REDIS_ERRORS):
                await asyncio.gather(
                    *(self._run(RENEW, (each.keys.load,), (token, str(_LEASE))) for each in self._members)
                )
