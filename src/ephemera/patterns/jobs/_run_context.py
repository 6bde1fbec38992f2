"""A running job as its function sees it: steps, each run once however often the job changes workers.

`run.step(name, work, ...)` returns the recorded result of a step that any worker completed before, and runs
the others. A completed step is recorded in SQL, then in the checkpoint, where the same script publishes its
progress event. So an event is published only for what SQL knows, and a step is repeated only if its worker
died between the work and the record.

- `durable=False` skips SQL, for steps that are many and cheap: they are repeated if Redis loses them.
- `run.transact(name, work, ...)` is for effects in SQL: `work(sql, ...)` and the record are one transaction.
- For effects elsewhere, `run.idempotency_key(name)` is the same in every attempt.

A job's function may end while steps of it still run: a sibling in `asyncio.gather` failed, or its time is up.
Its row is given up only when all of them have ended (`_wait_for_steps`), so that no step runs in two workers
at once.

*Threads.* Plain functions run in threads, and cannot be stopped once they have begun; what they return is
recorded, although the job no longer waits for it. Also waited for is what the job's own code began with
`asyncio.to_thread` or `loop.run_in_executor(None, ...)`. Steps have threads of their own: the event loop's
default ones, which resolve host names too, stay free when steps keep all theirs busy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, ParamSpec, TypeVar, cast, overload

from sqlalchemy import text

from ephemera._futures import discard
from ephemera._outage_log import OutageLog
from ephemera.errors import ConnectionFailed, DuplicateStep, JobLost, ServerError
from ephemera.keyspace import DECODE_ERRORS
from ephemera.patterns.jobs._checkpoint import STEP
from ephemera.patterns.jobs._job_definition import annotation
from ephemera.patterns.jobs._job_queries import JobQueries
from ephemera.patterns.jobs._rows import DATABASE_ERRORS, JobRows
from ephemera.patterns.jobs._runtime import JobBackend
from ephemera.patterns.jobs._tables import JobRow, decode_step, encode_step

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("ephemera.jobs")
_REPEATED = OutageLog(_log)
_PAUSE = 0.2  # seconds between two attempts to reach the database
_LIMIT_EXCEEDED = "54"  # a class of SQLSTATE: a value that is too large today is too large tomorrow
_SET_IDLE_TIMEOUT = text("SELECT set_config('idle_in_transaction_session_timeout', :milliseconds, true)")


MAX_THREADS = 64
Calls = set[Future[Any]]
"""The calls of one attempt that have not ended."""
CALLS: ContextVar[Calls | None] = ContextVar("ephemera_job_calls", default=None)
"""Those of the attempt that is running."""


class JobThreads(ThreadPoolExecutor):
    """A pool of threads that adds each call to those of the attempt that makes it."""

    def __init__(self, threads: int = MAX_THREADS) -> None:
        super().__init__(threads, thread_name_prefix="ephemera-job")

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a thread, or later if all are busy."""
        call, calls = super().submit(function, *args, **kwargs), CALLS.get()
        if calls is not None:
            calls.add(call)
            call.add_done_callback(calls.discard)
        return call


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
    ending: bool = False
    """Whether the job's function has ended, so that no further step may begin."""
    deadline: float = float("inf")
    """When the time limit of the attempt is up (monotonic)."""
    steps: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    """Steps that run now, and the task that each runs in."""
    calls: Calls = field(default_factory=set)
    """Functions of the attempt that run in threads, or wait for one."""
    late: set[asyncio.Task[Any]] = field(default_factory=set)
    """Records of plain functions whose step was cancelled."""


class Run:
    """One attempt of a job, as its function sees it."""

    def __init__(
        self, backend: JobBackend, row: JobRow, rows: JobRows | None = None, threads: JobThreads | None = None
    ) -> None:
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
        self._rows = rows or backend.rows
        self._threads = threads or JobThreads(1)
        self._idle_timeout = str(round(backend.declaration.lease.total_seconds() * 1000))
        self._known: dict[str, bytes] = {}
        self._unrecorded: frozenset[str] = frozenset()
        """Steps whose results only Redis has."""
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

        Args:
            name: The name of the step, which the job has once.
            work: An `async def`, or a plain function, which then runs in a thread. Its result is stored as
                JSON and converted back as its return annotation says.
            args: What `work` is called with.
            event: Published when the step is done: an event, or a function that makes one from the result. It
                is not published again when the job is resumed.
            durable: False to record the step in Redis alone, for steps that are many and cheap.
            kwargs: What `work` is called with, by name.

        """
        begin = partial(self._call, name, partial(work, *args, **kwargs), durable=durable)
        return await self._step(name, annotation(work, "return"), begin, event=event, durable=durable)

    async def _step(
        self, name: str, returned: Any, begin: Callable[[], Awaitable[Any]], *, event: Any, durable: bool
    ) -> Any:
        """The recorded result of a step, or what `begin` returns now."""
        known = self._enter(name, returned)
        if known is None:
            try:
                known = encode_step(self.kind, name, await begin())
                result = decode_step(known, returned)
                if durable:
                    await self._record(name, known)
                await self._save_step(name, known, event(result) if callable(event) else event)
                return result
            finally:
                self._state.steps.pop(name, None)
        return await self._replay_step(name, known, decode_step(known, returned), event)

    async def transact(
        self, name: str, work: Callable[..., Awaitable[T]], /, *args: Any, event: Any = None, **kwargs: Any
    ) -> T:
        """A step with effects in SQL: `work(sql, ...)` and the record of the step are one transaction.

        Only the worker that holds the job can commit it. Wait in it for nothing but the database: a
        transaction that is idle for longer than the job's lease is ended.

        `event` is published after the commit: an event, or a function that makes one from the result.
        """
        returned = annotation(work, "return")
        known = self._enter(name, returned)
        if known is not None:
            return cast("T", await self._replay_step(name, known, decode_step(known, returned), event))
        try:
            async with self.engine.begin() as sql:
                await sql.execute(_SET_IDLE_TIMEOUT, {"milliseconds": self._idle_timeout})
                known = encode_step(self.kind, name, await work(sql, *args, **kwargs))
                # Last, so that the job's row is locked only briefly and its lease can be renewed until then.
                if not await self._rows.record(sql, self.id, self.fence, name, known):
                    self._lose("SQL has a later fence")
            result: T = decode_step(known, returned)
            await self._save_step(name, known, event(result) if callable(event) else event)
            return result
        finally:
            self._state.steps.pop(name, None)

    async def publish(self, event: Any) -> None:
        """Publish a progress event between steps; if Redis is unavailable, it is lost."""
        await self._save({}, event)

    def idempotency_key(self, name: str) -> str:
        """A key for an effect outside SQL: the same in each attempt of this job."""
        return f"{self.id}:{name}"

    def _enter(self, name: str, returned: Any) -> bytes | None:
        """Begin a step; returns its recorded result, if there is one that can be decoded or is in SQL."""
        if name in self._visited:
            raise DuplicateStep(self.kind, name)
        self._visited.add(name)
        known = self._known.get(name)
        if known is not None and name in self._unrecorded and not _is_readable(known, returned):
            _log.warning("job %s: the saved step %r cannot be decoded, and is repeated", self.id, name)
            known = None
        if known is None:
            self._state.current_step = name
            if self._state.stopping:
                self._state.released = True
                raise asyncio.CancelledError("this worker stops; the job continues elsewhere")
            if self._state.ending:
                raise asyncio.CancelledError("the job's function has ended")
            task = asyncio.current_task()
            if task is not None:
                self._state.steps[name] = task
        return known

    async def _call(self, name: str, work: partial[Any], *, durable: bool) -> Any:
        if inspect.iscoroutinefunction(inspect.unwrap(work.func)):
            return await work()
        return await self._result_of(name, self._threads.submit(copy_context().run, work), durable=durable)

    async def _result_of(self, name: str, call: Future[Any], *, durable: bool) -> Any:
        """What a plain function returns; if its step is cancelled, it is recorded later."""
        try:
            result = await asyncio.shield(asyncio.wrap_future(call))
        except asyncio.CancelledError:
            if not call.cancel():  # it has begun
                late = asyncio.create_task(self._record_late(name, call, durable=durable))
                self._state.late.add(late)
                late.add_done_callback(self._state.late.discard)
            raise
        return await result if inspect.isawaitable(result) else result

    async def _record_late(self, name: str, call: Future[Any], *, durable: bool) -> None:
        """Record what a plain function returns after its step was cancelled, for the next attempt."""
        try:
            result = await asyncio.wrap_future(call)
            if durable and self._lost is None and not inspect.isawaitable(result):
                await self._record(name, encode_step(self.kind, name, result))
        except Exception as problem:
            _log.warning("job %s: the cancelled step %r was not recorded: %r", self.id, name, problem)

    async def _record(self, name: str, result: bytes) -> None:
        if not await until_database_answers(
            lambda: self._rows.record(None, self.id, self.fence, name, result)
        ):
            self._lose("SQL has a later fence")

    async def _wait_for_steps(self) -> None:
        """Wait until nothing of this attempt runs: at its time limit steps are cancelled, threads never."""
        state, own = self._state, asyncio.current_task()
        state.ending = True
        while running := {task for task in state.steps.values() if task is not own and not task.done()}:
            left = state.deadline - monotonic()
            if left <= 0:
                for task in running:
                    task.cancel("the job's time limit is up")
            await asyncio.wait(running, timeout=max(left, _PAUSE))
        while pending := {*state.late, *(asyncio.wrap_future(call) for call in list(state.calls))}:
            for each in pending:
                discard(each)
            await asyncio.wait(pending)

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


async def resume_run(run: Run, backend: JobBackend, queries: JobQueries) -> None:
    """Load the results of the recorded steps of a job that was just claimed; `JobLost` if it is another's."""
    saved = await _begin(run, backend)
    row = run.row
    known = {name.removeprefix(STEP): data for name, data in saved.items() if name.startswith(STEP)}
    recorded = await until_database_answers(lambda: queries.steps(row.id)) if row.steps else {}
    run._known = {**known, **recorded}
    run._unrecorded = frozenset(known.keys() - recorded.keys())
    # A worker may die between a step's record in SQL and the checkpoint, whose script publishes its event. A
    # first attempt that finds steps is a retry: the checkpoint was emptied, and every event was published.
    if row.attempts + row.crashes > 1 and row.step not in known:
        run._unpublished_step = row.step
        if run._known.keys() - known.keys() - {row.step}:  # done while Redis was unavailable
            run.checkpoint._mark_event_missing()


async def _begin(run: Run, backend: JobBackend) -> dict[str, bytes]:
    """Make the run's fence that of the checkpoint; returns what it holds."""
    while True:
        checkpoint = run.checkpoint
        try:
            return await checkpoint._begin()
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("job %s continues from SQL alone: %s", run.id, problem)
            return {}
        except JobLost:
            # If the row is still ours, SQL is older than Redis: it was restored from a backup.
            raise_fence = partial(run._rows.raise_fence, run.id, run.fence, checkpoint._later_fence)
            raised = await until_database_answers(raise_fence)
            if raised is None:
                raise
            run.row, run.fence, run.checkpoint = raised, raised.fence, backend.checkpoint(raised)


async def until_database_answers(query: Callable[[], Awaitable[T]]) -> T:
    """Repeat a query until the database answers; the expiry of the job's lease cancels the caller."""
    this = object()
    try:
        while True:
            try:
                answer = await query()
            except DATABASE_ERRORS as problem:
                cause = getattr(problem, "orig", problem)  # a pool without a free connection has no other
                if str(getattr(cause, "sqlstate", None)).startswith(_LIMIT_EXCEEDED):
                    raise
                _REPEATED.lose(this, "queries are repeated: %s", cause)
                await asyncio.sleep(_PAUSE)
            else:
                _REPEATED.regain(this, "no query is repeated any more")
                return answer
    finally:
        _REPEATED.forget(this)


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


def _is_readable(data: bytes, returned: Any) -> bool:
    try:
        decode_step(data, returned)
    except DECODE_ERRORS:
        return False
    return True
