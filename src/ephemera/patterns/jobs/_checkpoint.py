"""A job's checkpoint in Redis: named bytes for the next worker, which a late worker cannot change.

    await run.checkpoint.save({"outline": b"..."}, event=OutlineReady())
    await run.checkpoint.load("outline")

Each call is one script: it compares the fence, changes the fields, renews the lifetime and appends the
progress entry, or changes nothing and raises `JobLost`. Field names that begin with `_` belong to the
pattern, and those that begin with `step:` hold what `run.step` saved; all others are the job's. If Redis
loses its data, everything here is lost, and a job continues from its steps in SQL.

An event that Redis did not accept, or may not have accepted, is not sent later. Instead the next event that
it accepts skips a number in the progress stream, so that listeners know something is missing and load a
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ephemera._bounded_cache import BoundedCache
from ephemera.errors import InvalidValue, JobLost
from ephemera.keyspace import Keyspace, Store
from ephemera.patterns.progress import Progress, entry_arguments, progress_script, reopen_arguments
from ephemera.wire import Arg, Script

BEGIN = progress_script("ephemera.patterns.jobs", "begin")
SAVE = progress_script("ephemera.patterns.jobs", "checkpoint")
END = progress_script("ephemera.patterns.jobs", "end")

_MAX_UNPUBLISHED = 100_000
STEP = "step:"
"""The prefix of fields that hold the results of steps."""


class Checkpoints:
    """The checkpoints of a store."""

    def __init__(
        self, keyspace: Keyspace[Any], progress: Progress[Any] | None, store: Store, finished_channel: str
    ) -> None:
        self.keyspace = keyspace
        self.finished_channel = finished_channel
        self.progress = progress
        self.client = store.client(keyspace.role)
        self.lifetime = keyspace.lifetime.milliseconds or 0
        """Milliseconds."""
        self.unpublished: BoundedCache[str, None] = BoundedCache(_MAX_UNPUBLISHED)
        """Jobs of this process whose last event Redis may not have accepted."""

    def open(self, job_id: str, fence: int, worker: str) -> Checkpoint:
        """The checkpoint of a job, for the worker that holds this fence."""
        return Checkpoint(self, job_id, fence, worker)


class Checkpoint:
    """One job's checkpoint, as one worker may use it."""

    def __init__(self, checkpoints: Checkpoints, job_id: str, fence: int, worker: str) -> None:
        self.job_id = job_id
        self.fence = fence
        self._later_fence = 0
        self._lost: JobLost | None = None
        self._worker = worker
        self._progress = checkpoints.progress
        self._pattern = checkpoints.keyspace.pattern
        self._key = checkpoints.keyspace.key(job_id=job_id)
        self._lifetime = checkpoints.lifetime
        self._unpublished = checkpoints.unpublished
        self._finished_channel = checkpoints.finished_channel
        self._call, self._run = checkpoints.client.call, checkpoints.client.run

    async def save(
        self, fields: Mapping[str, bytes], /, *, remove: Iterable[str] = (), event: Any = None
    ) -> None:
        """Save and remove fields, and publish a progress event, in one step."""
        removed = list(remove)
        for name in (*fields, *removed):
            if name.startswith("_"):
                raise InvalidValue(self._pattern, "fields whose names do not begin with _", repr(name))
        flat: list[Arg] = [part for field in fields.items() for part in field]
        keys, entry = self._entry(event)
        counts = (len(fields), len(removed))
        arguments = (self.fence, self._worker, self._lifetime, *counts, *flat, *removed, *entry)
        if event is not None:
            self._mark_event_missing()  # until the server has confirmed it
        if later := await self._run(SAVE, keys, arguments):
            self._refuse(later)
        if event is not None:
            self._forget_missing_events()

    async def load(self, *names: str) -> dict[str, bytes]:
        """The fields of these names that exist, or all fields if no name is given."""
        if not names:
            return _without_internal(await self._call("HGETALL", self._key))
        found = await self._call("HMGET", self._key, *names)
        return {name: data for name, data in zip(names, found, strict=True) if data is not None}

    async def run_script(self, script: Script, /, *arguments: Arg) -> Any:
        """Run a script of your own on the checkpoint's hash, fenced like the other calls.

        The hash is its one key; fence, worker and lifetime in milliseconds come before your arguments. A
        reply that is a number above 0 is the fence of a later worker, and raises `JobLost`.
        """
        given = (self.fence, self._worker, self._lifetime, *arguments)
        reply = await self._run(script, (self._key,), given)
        if isinstance(reply, int) and reply:
            self._refuse(reply)
        return reply

    async def _begin(self) -> dict[str, bytes]:
        """Make this worker the one whose checkpoints count; returns all fields saved before.

        If the job had ended and is retried, its progress is reopened.
        """
        keys: tuple[str, ...] = (self._key,)
        arguments: tuple[Arg, ...] = (self.fence, self._worker, self._lifetime)
        if self._progress is not None and self.fence > 1:  # before that it cannot have ended
            keys = (self._key, self._progress.key(job_id=self.job_id))
            arguments += reopen_arguments(self._progress, job_id=self.job_id)
        reply = await self._run(BEGIN, keys, arguments)
        if isinstance(reply, int):
            self._refuse(reply)
        return _without_internal(_pairs(reply))

    async def _end(self, *, event: Any = None) -> None:
        """Delete everything but the fence when the job has ended, and publish its last event."""
        keys, entry = self._entry(event)
        self._forget_missing_events()
        arguments = (self.fence, self._lifetime, self._finished_channel, self.job_id, *entry)
        if later := await self._run(END, keys, arguments):
            self._refuse(later)

    def _mark_event_missing(self) -> None:
        """Make the next event show listeners that events before it may be missing."""
        self._unpublished[self.job_id] = None

    def _forget_missing_events(self) -> None:
        """They are known to listeners, or to the worker that has the job now."""
        self._unpublished.pop(self.job_id, None)

    def _entry(self, event: Any) -> tuple[tuple[str, ...], tuple[Arg, ...]]:
        """The keys of a script, and the arguments that append an event to the progress stream."""
        if event is None:
            return (self._key,), ()
        if self._progress is None:
            raise InvalidValue(self._pattern, "jobs without progress=", f"the event {event!r}")
        arguments = entry_arguments(self._progress, event, job_id=self.job_id)
        gap = ("1",) if self.job_id in self._unpublished else ()
        return (self._key, self._progress.key(job_id=self.job_id)), (*arguments, *gap)

    def _refuse(self, later: int) -> NoReturn:
        self._later_fence = later
        self._forget_missing_events()
        self._lost = JobLost(self.job_id, self.fence, f"its checkpoint carries the later fence {later}")
        raise self._lost


def _pairs(flat: Any) -> dict[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def _without_internal(stored: Mapping[bytes, bytes]) -> dict[str, bytes]:
    own = {name: data for name, data in stored.items() if not name.startswith(b"_")}
    return {name.decode("utf-8", "backslashreplace"): data for name, data in own.items()}
