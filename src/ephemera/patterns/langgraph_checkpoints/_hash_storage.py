"""Threads of a store, each in a hash of its own, with the sets that tell which threads a run is in.

A run's set is written before its first checkpoint in a thread, and lives twice as long. While a thread goes
on, whoever adds to it renews the sets of all its runs, so that they do not end before it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from time import monotonic
from typing import Any

from ephemera.errors import InvalidValue
from ephemera.keyspace import REDIS_ERRORS, Keyspace, MappingAccessor, SetAccessor, Stats, Store
from ephemera.patterns.langgraph_checkpoints._threads import COPY, DELETED, RUNS, refuse_enormous
from ephemera.wire import Arg, Client, Script

NOTE = Script.load("ephemera.patterns.langgraph_checkpoints", "note")
_MOST_NOTED = 10_000  # runs that this process remembers to have noted


class HashThreads:
    """The threads of one store; a blocking store's own is another one in each process, so it is asked for."""

    def __init__(
        self,
        space: Keyspace[MappingAccessor[bytes]],
        runs: Keyspace[SetAccessor[str]],
        store: Callable[[], Store],
    ) -> None:
        self._space = space
        self._runs = runs
        self._store = store
        self._life = space.lifetime.milliseconds or 0
        self._noted: dict[tuple[str, str], float] = {}

    @property
    def stats(self) -> Stats:
        """The counts of this store."""
        return self._store()[self._space].stats

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        """The reply of a script about a thread."""
        refuse_enormous(self._space.pattern, arguments)
        key = self._space.key(thread_id=thread_id)
        try:
            return await self._client.run(script, (key,), (0, "", self._life, *arguments))
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise

    async def note(self, thread_id: str, run_id: str) -> None:
        """Add a thread to a run's set, and renew the sets of its other runs, now and then."""
        now = monotonic()
        if now < self._noted.get((thread_id, run_id), 0.0):
            return
        runs = {run_id.encode(), *await self.run(thread_id, RUNS)}
        await self._enter(thread_id, runs)
        if len(self._noted) >= _MOST_NOTED:
            self._noted.clear()
        self._noted[thread_id, run_id] = now + self._life / 3000

    async def of_runs(self, run_ids: Collection[str]) -> Collection[str]:
        """The threads in the sets of these runs."""
        members = self._store()[self._runs].members
        return set().union(*await asyncio.gather(*(members(run_id=run_id) for run_id in run_ids)))

    async def copy(self, source: str, target: str) -> None:
        """Read a thread and fill another with it, which may be on another server."""
        found = await self._client.call("HGETALL", self._space.key(thread_id=source))
        flat = [part for field in found.items() if field[0] != DELETED for part in field]
        if flat:
            await self._enter(target, set(await self.run(source, RUNS)))
            if await self.run(target, COPY, *flat) == b"taken":
                raise InvalidValue(
                    self._space.pattern, "copies in empty threads", f"{target!r}, which is not"
                )

    async def _enter(self, thread_id: str, runs: Collection[bytes]) -> None:
        """Have the sets of these runs name a thread."""
        keys = [self._runs.key(run_id=run) for run in runs]
        await asyncio.gather(*(self._client.run(NOTE, (key,), (thread_id, 2 * self._life)) for key in keys))

    @property
    def _client(self) -> Client:
        return self._store().client(self._space.role)
