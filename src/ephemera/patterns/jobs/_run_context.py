"""A job while it runs: its steps, each done once however often the job is taken over.

`run.step(name, work, ...)` gives the recorded result of a step that was done before, by whichever worker,
and does the others. A step that is done is recorded in SQL, then in the checkpoint, where its progress
event is told in the same script. So an event is only told of what SQL knows, and a step can only be
repeated when its worker died between the work and the record.

- `durable=False` leaves SQL out, for steps that are many and cheap: they are repeated if Redis loses them.
- `run.transact(name, work, ...)` is for effects in SQL: `work(sql, ...)` and the record are one transaction.
- For effects elsewhere, `run.key(name)` is the same for each attempt: an idempotency key.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast, overload

import msgspec
from sqlalchemy import text

from ephemera.errors import (
    ConnectionFailed,
    DuplicateStep,
    InvalidValue,
    JobLost,
    ServerError,
)
from ephemera.patterns.jobs._annotations import annotation
from ephemera.patterns.jobs._checkpoints import STEP
from ephemera.patterns.jobs._rows import SQL_TROUBLE, JobRow
from ephemera.patterns.jobs._runtime import BoundJobs

T = TypeVar("T")

_log = logging.getLogger("ephemera.jobs")
_PAUSE = 0.2  # seconds between two attempts to reach the database
_IDLE = text("SELECT set_config('idle_in_transaction_session_timeout', :milliseconds, true)")


class Run:
    """One attempt of a job, as its function sees it."""

    def __init__(self, live: BoundJobs, row: JobRow, known: dict[str, bytes]) -> None:
        self.row = row
        """The job as it was claimed."""
        self.id = row.id
        """The job's id."""
        self.kind = row.kind
        self.attempt = row.attempts
        """1 for the first."""
        self.fence = row.fence
        """Larger than that of every attempt before: SQL and the checkpoint refuse an older one."""
        self.store = live.store
        self.engine = live.engine
        self.resources: Any = None
        """What `@JOBS.resources` opened in this process."""
        self.checkpoint = live.checkpoint(row)
        """Named bytes of the job's own, fenced; see `Checkpoint`."""
        self.current = ""
        """The step at work."""
        self.lost: JobLost | None = None
        self.stopping = False
        self.handing_back = False
        self.threads: set[asyncio.Future[Any]] = set()
        self._rows = live.rows
        self._idle = str(round(live.declared.lease.total_seconds() * 1000))
        self._known = known
        self._met: set[str] = set()
        self._unsaved: dict[str, bytes] = {}
        self._untold: str | None = None

    @classmethod
    async def resumed(cls, live: BoundJobs, row: JobRow) -> Run:
        """The run of a job that was just claimed, with what is known of its steps."""
        checkpoint = live.checkpoint(row)
        try:
            saved = await checkpoint.begin()
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("the job %s goes on from SQL alone: %s", row.id, problem)
            saved = {}
        except JobLost:
            # If SQL still says that it is ours, SQL is older than Redis: it was restored from a backup.
            above = await live.rows.raise_fence(row.id, row.fence, checkpoint.later)
            if above is None:
                raise
            return await cls.resumed(live, above)
        known = {name.removeprefix(STEP): data for name, data in saved.items() if name.startswith(STEP)}
        run = cls(live, row, {**known, **await live.rows.steps(row.id)})
        # A worker may die between a step's record in SQL and the checkpoint, whose script tells its event. A
        # first attempt that finds steps is a retry: the checkpoint was emptied, and all of it was told.
        if row.attempts > 1 and row.step not in known:
            run._untold = row.step
            if run._known.keys() - known.keys() - {row.step}:  # done while Redis was away
                run.checkpoint.has_untold()
        return run

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
        """The result of a step: what it came to before, or what `work` returns now.

        `work` is an `async def`, or a plain function, which then runs in a thread. What it returns is
        stored as JSON and given back as its return annotation says. `event` is told when it is done, the
        event itself or a function that makes it of the result; not again when the job is resumed.
        """
        returned = annotation(work, "return")
        known = self._enter(name)
        if known is None:
            known = _encode(self.kind, name, await self._call(partial(work, *args, **kwargs)))
            result = _decode(known, returned)
            if durable and not await patiently(
                lambda: self._rows.record(None, self.id, self.fence, name, known)
            ):
                self._lose("SQL has a later fence")
            await self._mark(name, known, event(result) if callable(event) else event)
            return result
        return await self._recalled(name, known, _decode(known, returned), event)

    async def transact(
        self, name: str, work: Callable[..., Awaitable[T]], /, *args: Any, event: Any = None, **kwargs: Any
    ) -> T:
        """The same for effects in SQL: `work(sql, ...)` and the record of the step are one transaction.

        It is committed by the job's holder or not at all. Do not wait in it for anything but the database:
        one that is idle for longer than the job's lease is ended.
        """
        returned = annotation(work, "return")
        known = self._enter(name)
        if known is not None:
            return cast("T", await self._recalled(name, known, _decode(known, returned), event))
        async with self.engine.begin() as sql:
            await sql.execute(_IDLE, {"milliseconds": self._idle})
            known = _encode(self.kind, name, await work(sql, *args, **kwargs))
            # Last, so that the job's row is locked for a moment only, and its lease can be renewed meanwhile.
            if not await self._rows.record(sql, self.id, self.fence, name, known):
                self._lose("SQL has a later fence")
        result: T = _decode(known, returned)
        await self._mark(name, known, event(result) if callable(event) else event)
        return result

    async def tell(self, event: Any) -> None:
        """Tell a progress event between steps; when Redis is away, nobody hears it."""
        await self._save({}, event)

    def key(self, name: str) -> str:
        """An idempotency key for an effect outside SQL: the same in each attempt of this job."""
        return f"{self.id}:{name}"

    def _enter(self, name: str) -> bytes | None:
        if name in self._met:
            raise DuplicateStep(self.kind, name)
        self._met.add(name)
        known = self._known.get(name)
        if known is None:
            self.current = name
            if self.stopping:
                self.handing_back = True
                raise asyncio.CancelledError("this worker stops; the job goes on elsewhere")
        return known

    async def _call(self, work: partial[Any]) -> Any:
        if inspect.iscoroutinefunction(inspect.unwrap(work.func)):
            return await work()
        thread = asyncio.ensure_future(asyncio.to_thread(work))
        self.threads.add(thread)
        thread.add_done_callback(self.threads.discard)
        result = await asyncio.shield(thread)
        return await result if inspect.isawaitable(result) else result

    async def _recalled(self, name: str, data: bytes, result: T, event: Any) -> T:
        """The result of a step that was done before; its event is told if its worker had no time to."""
        if name == self._untold:
            self._untold = None
            await self._mark(name, data, event(result) if callable(event) else event)
        return result

    async def _mark(self, name: str, data: bytes, event: Any) -> None:
        self._unsaved[STEP + name] = data
        if await self._save(self._unsaved, event):
            self._unsaved = {}

    async def _save(self, fields: dict[str, bytes], event: Any) -> bool:
        try:
            await self.checkpoint.save(fields, event=event)
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("the job %s goes on without a checkpoint: %s", self.id, problem)
            return False
        except JobLost as lost:
            self.lost = lost
            raise
        return True

    def _lose(self, reason: str) -> None:
        self.lost = JobLost(self.id, self.fence, reason)
        raise self.lost


async def patiently(asked: Callable[[], Awaitable[T]]) -> T:
    """Ask the database until it answers; who keeps the lease ends this when it takes too long."""
    while True:
        try:
            return await asked()
        except SQL_TROUBLE as problem:
            _log.warning("SQL is asked again: %s", problem.orig)
            await asyncio.sleep(_PAUSE)


async def in_time(asked: Awaitable[T], seconds: float) -> T:
    """The answer, or `TimeoutError` at that moment: a query that hangs takes seconds to be cancelled.

    So it is left to itself, and ends with the server's answer or with its connection.
    """
    asking = asyncio.ensure_future(asked)
    asking.add_done_callback(lambda late: late.cancelled() or late.exception())
    try:
        await asyncio.wait({asking}, timeout=seconds)
    except asyncio.CancelledError:
        asking.cancel()
        raise
    if asking.done():
        return asking.result()
    raise TimeoutError(f"no answer within {seconds:.1f} s")


def _encode(kind: str, name: str, result: Any) -> bytes:
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError) as problem:
        raise InvalidValue(f"{kind}, step {name}", "what JSON can hold", str(problem)) from problem


def _decode(data: bytes, returned: Any) -> Any:
    return msgspec.json.decode(data, type=returned)
