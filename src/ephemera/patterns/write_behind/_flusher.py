"""The flusher: brings what is due from Redis to SQL, again and again, until SQL has it.

For each shard: seal a batch, write it and its number in one transaction of SQL, tell who wants to know
(`after`), forget the batch. A crash after any step is harmless: the next flusher is given the same batch
under the same number, and SQL says whether it has it. Any number of flushers may run, in any number of
processes; a batch that one of them has is given to another only after `takeover`. Errors of one shard do not
keep others waiting. While SQL or Redis fails, the flusher tries again after longer and longer pauses, up to
30 s.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeAlias

from ephemera.errors import InvalidValue
from ephemera.keyspace import check_durations
from ephemera.patterns.write_behind._batches import Batch, Behind, Sink
from ephemera.patterns.write_behind._counters import BoundCounters
from ephemera.patterns.write_behind._queues import Sealed
from ephemera.patterns.write_behind._records import BoundRecords

Source: TypeAlias = BoundCounters | BoundRecords[Any]
After: TypeAlias = Callable[[Batch], Awaitable[object]]

log = logging.getLogger("ephemera.write_behind")

_LONGEST_LOOK = 5.0  # seconds between looks at what is due, at most
_FIRST_PAUSE = 0.1  # seconds after a failure, then twice as long each time
_LONGEST_PAUSE = 30.0
_AT_ONCE = 4  # shards that one flusher writes at the same time, each on a connection to SQL


@dataclass(slots=True)
class Flushed:
    """What one flush did."""

    batches: int = 0
    rows: int = 0
    refused: int = 0
    """Rows that SQL refused; they are in its table of refused rows, with the reason."""
    repeated: int = 0
    """Batches that SQL had already: somebody died, or was overtaken, before they were forgotten."""
    elsewhere: int = 0
    """Shards that were left to another flusher."""


class Flusher:
    """Brings the counters or records of a store to a sink.

        async with Flusher(store[VIEWS], sink):      # in the background, as long as the block
            ...
        await Flusher(store[VIEWS], sink).flush()    # now, once

    `after` is awaited with each batch that is in SQL, at least once: a batch whose `after` fails is kept and
    brought again. `takeover` is how long a batch is left to a flusher that does not finish it. `settle` is
    how long a batch rests between sealing and writing: on a server that may forget its last second
    (appendfsync everysec, a fail-over), give it two, so that what SQL has cannot come back unsealed.
    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        *,
        after: After | None = None,
        takeover: timedelta = timedelta(seconds=30),
        settle: timedelta = timedelta(0),
    ) -> None:
        check_durations(source.declared.name, takeover=takeover, settle=settle)
        if takeover <= settle or settle < timedelta(0):
            given = f"takeover={takeover}, settle={settle}"
            raise InvalidValue(source.declared.name, "takeover longer than settle", given)
        self.failure: Exception | None = None
        """Why the last round in the background failed; None when it went well."""
        self._source = source
        self._sink = sink
        self._after = after
        self._claim = round(takeover.total_seconds() * 1000)
        self._settle = settle.total_seconds()
        self._who = f"{socket.gethostname()}/{os.getpid()}-{secrets.token_hex(4)}"
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._task: asyncio.Task[None] | None = None

    async def flush(self) -> Flushed:
        """Bring all that waits to SQL now; the first error is raised when every shard was tried."""
        return await self._sweep(now=True)

    async def run(self) -> None:
        """Bring what is due to SQL, for ever."""
        every = self._source.declared.shards.flush_every.total_seconds()
        look, pause = min(every / 2, _LONGEST_LOOK), _FIRST_PAUSE
        while True:
            try:
                await self._sweep(now=False)
            except Exception as problem:
                self.failure = problem
                log.warning("%s: not flushed, trying again: %s", self._source.declared.name, problem)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self.failure, pause = None, _FIRST_PAUSE
                await asyncio.sleep(look)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"flusher of {self._source.declared.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _sweep(self, *, now: bool) -> Flushed:
        done = Flushed()
        shards = range(self._source.declared.shards.count)
        outcomes = await asyncio.gather(
            *(self._flush_shard(shard, done, now=now) for shard in shards), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return done

    async def _flush_shard(self, shard: int, done: Flushed, *, now: bool) -> None:
        """Batch after batch, until one that was sealed here took all there was."""
        batch_size = self._source.declared.shards.batch
        while True:
            sealed = await self._source.queue.seal(
                shard, self._who, self._claim, secrets.token_hex(8), now=now
            )
            if not isinstance(sealed, Sealed):
                done.elsewhere += sealed is False
                return
            if self._settle:
                await asyncio.sleep(self._settle)
            async with self._room:
                brought = await self._bring(sealed, done)
            if brought and sealed.fresh and sealed.size < batch_size:
                return

    async def _bring(self, sealed: Sealed, done: Flushed) -> bool:
        """Write a batch and forget it; False when it has to be asked for again, under another number."""
        batch = await self._source.read(sealed)
        outcome = await self._sink.apply(batch)
        if isinstance(outcome, Behind):
            log.warning("%r is behind SQL, which has %d: renumbered", batch, outcome.number)
            await self._source.queue.renumber(batch, outcome.number)
            return False
        if outcome.now:
            done.batches += 1
            done.rows += len(batch.rows) - outcome.refused + len(batch.unread)
            done.refused += outcome.refused
        else:
            done.repeated += 1
        if self._after is not None:
            await self._after(batch)
        await self._source.queue.acknowledge(batch)
        return True
