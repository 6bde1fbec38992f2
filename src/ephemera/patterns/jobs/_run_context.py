"""A running job as its function sees it: steps, each run once however often the job changes workers.

`run.step(name, work, ...)` returns the recorded result of a step that any worker completed before, and runs
the others. A completed step is recorded in SQL, then in the checkpoint, where the same script publishes its
progress event. So an event is published only for what SQL knows, and a step is repeated only if its worker
died between the work and the record.

- `durable=False` skips SQL, for steps that are many and cheap: they are repeated if Redis loses them.
- `run.transact(name, work, ...)` is for effects in SQL: `work(sql, ...)` and the record are one transaction.
- For effects elsewhere, `run.idempotency_key(name)` is the same in every attempt.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast, overload

import msgspec
from sqlalchemy import text

from ephemera._futures import discard
from ephemera.errors import (
    ConnectionFailed,
    DuplicateStep,
    InvalidValue,
    JobLost,
    ServerError,
)
from ephemera.patterns.jobs._checkpoint import STEP
from ephemera.patterns.jobs._job_definition import annotation
from ephemera.patterns.jobs._rows import DATABASE_ERRORS, JobRow
from ephemera.patterns.jobs._runtime import JobBackend

T = TypeVar("T")

_log = logging.getLogger("ephemera.jobs")
_PAUSE = 0.2  # seconds between two attempts to reach the database
_SET_IDLE_TIMEOUT = text("SELECT set_config('idle_in_transaction_session_timeout', :milliseconds, true)")


@dataclass(slots=True)
class RunState:
    """What a run and the worker's attempt share; not part of what a job may use."""

    lost: JobLost | None = None
    """Why the job is no longer this attempt's."""
    stopping: bool = False
    """Whether the worker stops, so that no further step may begin."""
    released: bool = False
    """Whether the job was stopped for that, to continue elsewhere."""
    current_step: str = ""
    threads: set[asyncio.Future[Any]] = field(default_factory=set)
    """Steps that run in threads."""


class Run:
    """One attempt of a job, as its function sees it."""

    def __init__(self, backend: JobBackend, row: JobRow, known: dict[str, bytes]) -> None:
        self.row = row
        """The job as it was claimed."""
        self.id = row.id
        """The job's id."""
        self.kind = row.kind
        self.attempt = row.attempts
        """1 for the first."""
        self.fence = row.fence
        """Larger than that of every attempt before: SQL and the checkpoint refuse an older one."""
        self.store = backend.store
        self.engine = backend.engine
        self.worker_context: Any = None
        """What `@JOBS.worker_context` opened in this process."""
        self.checkpoint = backend.checkpoint(row)
        """Named bytes of the job's own, fenced; see `Checkpoint`."""
        self._state = RunState()
        self._rows = backend.rows
        self._idle_timeout = str(round(backend.declaration.lease.total_seconds() * 1000))
        self._known = known
        self._visited: set[str] = set()
        self._unsaved: dict[str, bytes] = {}
        self._unpublished_step: str | None = None

    @overload
    async def step(
        self,
        name: str,
        work: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        event: Any = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        work: Callable[..., T],
        /,
        *args: Any,
        event: Any = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> T: ...

    async def step(
        self,
        name: str,
        work: Callable[..., Any],
        /,
        *args: Any,
        event: Any = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> Any:
        """The result of a step: the recorded one, or what `work` returns now.

        `work` is an `async def`, or a plain function, which then runs in a thread. Its result is stored as
        JSON and converted back as its return annotation says. `event` is published when the step is done:
        an event, or a function that makes one from the result. It is not published again when the job is
        resumed.
        """
        returned = annotation(work, "return")
        known = self._enter(name)
        if known is None:
            known = _encode(self.kind, name, await self._call(partial(work, *args, **kwargs)))
            result = _decode(known, returned)
            if durable and not await until_database_answers(
                lambda: self._rows.record(None, self.id, self.fence, name, known)
            ):
                self._lose("SQL has a later fence")
            await self._save_step(name, known, event(result) if callable(event) else event)
            return result
        return await self._replay_step(name, known, _decode(known, returned), event)

    async def transact(
        self, name: str, work: Callable[..., Awaitable[T]], /, *args: Any, event: Any = None, **kwargs: Any
    ) -> T:
        """A step with effects in SQL: `work(sql, ...)` and the record of the step are one transaction.

        Only the worker that holds the job can commit it. Wait in it for nothing but the database: a
        transaction that is idle for longer than the job's lease is ended.
        """
        returned = annotation(work, "return")
        known = self._enter(name)
        if known is not None:
            return cast("T", await self._replay_step(name, known, _decode(known, returned), event))
        async with self.engine.begin() as sql:
            await sql.execute(_SET_IDLE_TIMEOUT, {"milliseconds": self._idle_timeout})
            known = _encode(self.kind, name, await work(sql, *args, **kwargs))
            # Last, so that the job's row is locked only briefly and its lease can be renewed meanwhile.
            if not await self._rows.record(sql, self.id, self.fence, name, known):
                self._lose("SQL has a later fence")
        result: T = _decode(known, returned)
        await self._save_step(name, known, event(result) if callable(event) else event)
        return result

    async def publish(self, event: Any) -> None:
        """Publish a progress event between steps; if Redis is unavailable, it is lost."""
        await self._save({}, event)

    def idempotency_key(self, name: str) -> str:
        """A key for an effect outside SQL: the same in each attempt of this job."""
        return f"{self.id}:{name}"

    def _enter(self, name: str) -> bytes | None:
        """Begin a step; returns its recorded result, if there is one."""
        if name in self._visited:
            raise DuplicateStep(self.kind, name)
        self._visited.add(name)
        known = self._known.get(name)
        if known is None:
            self._state.current_step = name
            if self._state.stopping:
                self._state.released = True
                raise asyncio.CancelledError("this worker stops; the job continues elsewhere")
        return known

    async def _call(self, work: partial[Any]) -> Any:
        if inspect.iscoroutinefunction(inspect.unwrap(work.func)):
            return await work()
        thread = asyncio.ensure_future(asyncio.to_thread(work))
        self._state.threads.add(thread)
        thread.add_done_callback(self._state.threads.discard)
        result = await asyncio.shield(thread)
        return await result if inspect.isawaitable(result) else result

    async def _replay_step(self, name: str, data: bytes, result: T, event: Any) -> T:
        """The result of a step that was done before; publishes its event if its worker died before that."""
        if name == self._unpublished_step:
            self._unpublished_step = None
            await self._save_step(name, data, event(result) if callable(event) else event)
        return result

    async def _save_step(self, name: str, data: bytes, event: Any) -> None:
        self._unsaved[STEP + name] = data
        if await self._save(self._unsaved, event):
            self._unsaved = {}

    async def _save(self, fields: dict[str, bytes], event: Any) -> bool:
        try:
            await self.checkpoint.save(fields, event=event)
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("job %s continues without a checkpoint: %s", self.id, problem)
            return False
        return True

    @property
    def _lost(self) -> JobLost | None:
        """Why the job is no longer this attempt's, whichever noticed it: SQL, the lease or the checkpoint."""
        return self._state.lost or self.checkpoint._lost

    def _lose(self, reason: str) -> None:
        self._state.lost = JobLost(self.id, self.fence, reason)
        raise self._state.lost


async def resume_run(backend: JobBackend, row: JobRow) -> Run:
    """The run of a job that was just claimed, with the results of its recorded steps."""
    checkpoint = backend.checkpoint(row)
    try:
        saved = await checkpoint._begin()
    except (ConnectionFailed, ServerError) as problem:
        _log.warning("job %s continues from SQL alone: %s", row.id, problem)
        saved = {}
    except JobLost:
        # If the row is still ours, SQL is older than Redis: it was restored from a backup.
        raised = await backend.rows.raise_fence(row.id, row.fence, checkpoint._later_fence)
        if raised is None:
            raise
        return await resume_run(backend, raised)
    known = {name.removeprefix(STEP): data for name, data in saved.items() if name.startswith(STEP)}
    run = Run(backend, row, {**known, **await backend.queries.steps(row.id)})
    # A worker may die between a step's record in SQL and the checkpoint, whose script publishes its event. A
    # first attempt that finds steps is a retry: the checkpoint was emptied, and every event was published.
    if row.attempts > 1 and row.step not in known:
        run._unpublished_step = row.step
        if run._known.keys() - known.keys() - {row.step}:  # done while Redis was unavailable
            run.checkpoint._mark_event_missing()
    return run


async def until_database_answers(query: Callable[[], Awaitable[T]]) -> T:
    """Repeat a query until the database answers; the expiry of the job's lease cancels the caller."""
    while True:
        try:
            return await query()
        except DATABASE_ERRORS as problem:
            _log.warning("a query is repeated: %s", problem.orig)
            await asyncio.sleep(_PAUSE)


async def with_timeout(query: Awaitable[T], seconds: float) -> T:
    """The result, or `TimeoutError` at that moment, although cancelling a query that hangs takes seconds.

    Such a query is left running, and ends with the server's answer or with its connection.
    """
    running = asyncio.ensure_future(query)
    discard(running)
    try:
        await asyncio.wait({running}, timeout=seconds)
    except asyncio.CancelledError:
        running.cancel()
        raise
    if running.done():
        return running.result()
    raise TimeoutError(f"no answer within {seconds:.1f} s")


def _encode(kind: str, name: str, result: Any) -> bytes:
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError) as problem:
        raise InvalidValue(f"{kind}, step {name}", "what JSON can hold", str(problem)) from problem


def _decode(data: bytes, returned: Any) -> Any:
    return msgspec.json.decode(data, type=returned)
