"""A job's checkpoint in Redis: named bytes that the next worker gets, and that a late one cannot change.

    checkpoint = store[JOBS].of(job_id, fence, worker)        # or `run.checkpoint` inside a job
    await checkpoint.begin()                                  # everything saved so far
    await checkpoint.save({"outline": b"..."}, event=OutlineReady())
    await checkpoint.load("outline")

Each call is one script: it compares the fence, changes the fields, renews the lifetime and adds the
progress entry, or changes nothing and raises `JobLost`. Field names beginning with `_` are the pattern's
own, and those beginning with `step:` are what `run.step` saved; all others are the job's. Lost with Redis:
everything here. A job then goes on from its steps in SQL.

An event that Redis did not take, or may not have taken, is not told later: the next one that it takes leaves
a number out of the progress, so that whoever listens is told that something is missing, and gets a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ephemera.errors import InvalidValue, JobLost
from ephemera.keyspace import Store
from ephemera.patterns.progress import appending
from ephemera.wire import Arg, Script

if TYPE_CHECKING:
    from ephemera.patterns.jobs._declaration import Jobs

BEGIN = Script.load("ephemera.patterns.jobs", "begin")
SAVE = appending("ephemera.patterns.jobs", "checkpoint")
END = appending("ephemera.patterns.jobs", "end")

STEP = "step:"
"""Begins the names of fields that hold the results of steps."""


class Checkpoints:
    """The checkpoints of a store: what `store[JOBS]` gives."""

    def __init__(self, declared: Jobs, store: Store) -> None:
        self.declared = declared
        self.client = store.client(declared.checkpoints.role)
        self.life = declared.checkpoints.lifetime.milliseconds or 0
        self.untold: set[str] = set()
        """Jobs of this process with events that Redis may not have taken, until the next one that it took."""

    def of(self, job_id: str, fence: int, worker: str) -> Checkpoint:
        """The checkpoint of a job, for who holds it by this fence."""
        return Checkpoint(self, job_id, fence, worker)


class Checkpoint:
    """One job's checkpoint, as one worker may use it."""

    def __init__(self, checkpoints: Checkpoints, job_id: str, fence: int, worker: str) -> None:
        self.job_id = job_id
        self.fence = fence
        self.later = 0
        """The later fence that refused this one, if any."""
        self._worker = worker
        self._progress = checkpoints.declared.progress
        self._pattern = checkpoints.declared.checkpoints.pattern
        self._key = checkpoints.declared.checkpoints.key(job_id=job_id)
        self._life = checkpoints.life
        self._untold = checkpoints.untold
        self._call, self._run = checkpoints.client.call, checkpoints.client.run

    async def begin(self) -> dict[str, bytes]:
        """Become the worker whose checkpoints count; all fields that were saved before."""
        reply = await self._run(BEGIN, (self._key,), (self.fence, self._worker, self._life))
        if isinstance(reply, int):
            self._refused(reply)
        return _own(_pairs(reply))

    async def save(
        self, fields: Mapping[str, bytes], /, *, remove: Iterable[str] = (), event: Any = None
    ) -> None:
        """Save and remove fields, and tell an event, in one step."""
        removed = list(remove)
        for name in (*fields, *removed):
            if name.startswith("_"):
                raise InvalidValue(self._pattern, "fields whose names do not begin with _", repr(name))
        flat: list[Arg] = [part for field in fields.items() for part in field]
        keys, entry = self._entry(event)
        counts = (len(fields), len(removed))
        arguments = (self.fence, self._worker, self._life, *counts, *flat, *removed, *entry)
        if event is not None:
            self.has_untold()  # until it is known to be told
        if later := await self._run(SAVE, keys, arguments):
            self._refused(later)
        if event is not None:
            self._untold.discard(self.job_id)

    def has_untold(self) -> None:
        """Let the next event say that some before it may be missing."""
        self._untold.add(self.job_id)

    async def load(self, *names: str) -> dict[str, bytes]:
        """The fields of these names that are there, or all of them when none is named."""
        if not names:
            return _own(await self._call("HGETALL", self._key))
        found = await self._call("HMGET", self._key, *names)
        return {name: data for name, data in zip(names, found, strict=True) if data is not None}

    async def apply(self, script: Script, /, *arguments: Arg) -> Any:
        """The reply of another pattern's script, which compares the fence as these do.

        It takes this hash as its key, and fence, worker and lifetime before its own arguments. A number above
        0 is the fence of a later worker.
        """
        given = (self.fence, self._worker, self._life, *arguments)
        reply = await self._run(script, (self._key,), given)
        if isinstance(reply, int) and reply:
            self._refused(reply)
        return reply

    async def end(self, *, event: Any = None) -> None:
        """Forget all but the fence, when the job has ended."""
        keys, entry = self._entry(event)
        self._untold.discard(self.job_id)
        if later := await self._run(END, keys, (self.fence, self._life, *entry)):
            self._refused(later)

    def _entry(self, event: Any) -> tuple[tuple[str, ...], tuple[Arg, ...]]:
        """The keys of a script, and what it adds to the progress."""
        if event is None:
            return (self._key,), ()
        if self._progress is None:
            raise InvalidValue(self._pattern, "jobs without progress=", f"the event {event!r}")
        arguments = self._progress.entry_arguments(event, job_id=self.job_id)
        untold = ("1",) if self.job_id in self._untold else ()
        return (self._key, self._progress.key(job_id=self.job_id)), (*arguments, *untold)

    def _refused(self, later: int) -> NoReturn:
        self.later = later
        self._untold.discard(self.job_id)  # whoever has the job knows what it lacks
        raise JobLost(self.job_id, self.fence, f"its checkpoint carries the later fence {later}")


def _pairs(flat: Any) -> dict[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def _own(stored: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """The fields but the pattern's own."""
    return {name.decode(): data for name, data in stored.items() if not name.startswith(b"_")}
