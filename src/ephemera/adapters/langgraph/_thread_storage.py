"""Where the state of threads is stored: a hash for each, or in a job the job's checkpoint.

Both run the same scripts, which take a fence, a worker and a lifetime before other arguments. Outside of jobs
the fence is 0, and refuses nothing.

A set for each run names the threads that the run has checkpoints in. It is written before the run's first
checkpoint in a thread, and lives twice as long. While a thread is used, the sets of all its runs are renewed,
so that they do not expire before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ephemera._bounded_cache import BoundedCache
from ephemera.adapters._store_access import StoreAccess
from ephemera.errors import ConnectionFailed, InvalidValue, ServerError
from ephemera.keyspace import Keyspace, MappingAccessor, SetAccessor, Stats
from ephemera.wire import Arg, Script

if TYPE_CHECKING:
    from ephemera.patterns.jobs import Run  # needs the extra `jobs`, which graphs alone do not

_PACKAGE = "ephemera.adapters.langgraph"
_log = logging.getLogger("ephemera.langgraph")

_MAX_RUNS = 10_000  # runs that this process remembers to have registered
MAX_BYTES = 32 * 1024 * 1024
"""Of one write: a larger one would block the server for all other clients."""


def _thread_script(verb: str) -> Script:
    """The script `lua/<verb>.lua`, preceded by `lua/thread.lua`."""
    return Script.load(_PACKAGE, verb, shared=(f"{_PACKAGE}:thread",))


PUT, WRITE, GET, LIST = map(_thread_script, ("put", "write", "get", "list"))
DELETE, DELETE_RUNS, PRUNE = map(_thread_script, ("delete", "delete_runs", "prune"))
RUNS, COPY = map(_thread_script, ("runs", "copy"))
REGISTER_RUN = Script.load(_PACKAGE, "register_run")

DELETED = b"_graph:deleted"
"""The field that marks a deletion; it is not copied with a thread."""


class ThreadStorage(Protocol):
    """What a saver needs of the storage of its threads."""

    @property
    def stats(self) -> Stats:
        """The counts of reads and writes."""

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        """Run a script on a thread; None if the graph is to continue without Redis."""

    async def register_run(self, thread_id: str, run_id: str) -> None:
        """Make `threads_of_runs` find a thread by a run that is about to add to it."""

    async def threads_of_runs(self, run_ids: Collection[str]) -> Collection[str]:
        """The threads that have checkpoints of these runs, and possibly others."""

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread into an empty one."""


def check_size(name: str, arguments: tuple[Arg, ...]) -> None:
    """Raise `InvalidValue` for a write that is too large."""
    size = sum(len(part) for part in arguments if isinstance(part, bytes))
    if size > MAX_BYTES:
        raise InvalidValue(
            name,
            f"checkpoints of at most {MAX_BYTES >> 20} MiB (store large values elsewhere, their ids here)",
            f"{size / (1 << 20):.1f} MiB",
        )


class HashThreadStorage:
    """The threads of one store."""

    def __init__(
        self,
        keyspace: Keyspace[MappingAccessor[bytes]],
        runs: Keyspace[SetAccessor[str]],
        access: StoreAccess,
    ) -> None:
        self._keyspace = keyspace
        self._runs = runs
        self._access = access
        self._lifetime = keyspace.lifetime.milliseconds or 0
        self._registered: BoundedCache[tuple[str, str], float] = BoundedCache(_MAX_RUNS)

    @property
    def stats(self) -> Stats:
        """The counts of this store."""
        return self._access.store[self._keyspace].stats

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        """Run a script on a thread."""
        check_size(self._keyspace.pattern, arguments)
        key = self._keyspace.key(thread_id=thread_id)
        return await self._access.run(self._run(script, key, 0, "", self._lifetime, *arguments))

    async def _run(self, script: Script, key: str, *arguments: Arg) -> Any:
        client = self._access.store.client(self._keyspace.role)
        with self.stats.counting_errors:
            return await client.run(script, (key,), arguments)

    async def register_run(self, thread_id: str, run_id: str) -> None:
        """Add a thread to a run's set, and renew the sets of its other runs, every third of a lifetime."""
        now = monotonic()
        if now < self._registered.get((thread_id, run_id), 0.0):
            return
        runs = {run_id.encode(), *await self.run(thread_id, RUNS)}
        await self._add_to_runs(thread_id, runs)
        self._registered[thread_id, run_id] = now + self._lifetime / 3000

    async def threads_of_runs(self, run_ids: Collection[str]) -> Collection[str]:
        """The threads in the sets of these runs."""
        return await self._access.run(self._members(run_ids))

    async def _members(self, run_ids: Collection[str]) -> Collection[str]:
        members = self._access.store[self._runs].members
        return set().union(*await asyncio.gather(*(members(run_id=run_id) for run_id in run_ids)))

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread into an empty one, which may be on another server."""
        found = await self._access.run(self._read_all(source))
        flat = [part for field in found.items() if field[0] != DELETED for part in field]
        if flat:
            await self._add_to_runs(target, set(await self.run(source, RUNS)))
            if await self.run(target, COPY, *flat) == b"taken":
                raise InvalidValue(
                    self._keyspace.pattern, "copies in empty threads", f"{target!r}, which is not"
                )

    async def _add_to_runs(self, thread_id: str, runs: Collection[bytes]) -> None:
        """Add a thread to the sets of these runs."""
        keys = [self._runs.key(run_id=run) for run in runs]
        await asyncio.gather(
            *(self._access.run(self._run(REGISTER_RUN, key, thread_id, 2 * self._lifetime)) for key in keys)
        )

    async def _read_all(self, thread_id: str) -> Any:
        client = self._access.store.client(self._keyspace.role)
        return await client.call("HGETALL", self._keyspace.key(thread_id=thread_id))


class JobThreadStorage:
    """The one thread of a job."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.stats = Stats()

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        """Run a script; `JobLost` if a later worker has the job, None if Redis is down."""
        if thread_id != self._run.id:
            raise InvalidValue(f"the graph of job {self._run.id}", "only its own thread", repr(thread_id))
        check_size(f"the graph of job {self._run.id}", arguments)
        try:
            return await self._run.checkpoint.run_script(script, *arguments)
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("the graph of job %s continues without a checkpoint: %s", self._run.id, problem)
            return None

    async def register_run(self, _thread_id: str, _run_id: str) -> None:
        """Do nothing: all runs are in the one thread."""

    async def threads_of_runs(self, _run_ids: Collection[str]) -> Collection[str]:
        """The job itself."""
        return (self._run.id,)

    async def copy(self, _source: str, target: str) -> None:
        """Refuse: a job has one thread."""
        raise InvalidValue(f"the graph of job {self._run.id}", "only its own thread", repr(target))
