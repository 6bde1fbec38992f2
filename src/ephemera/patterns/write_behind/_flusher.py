"""The flusher: moves due batches from Redis to SQL, and retries until SQL has them.

For each shard: seal a batch, wait until the seal is safe on the server's disk, write the batch and its number
in one SQL transaction, call `on_applied`, remove the batch. A crash after any step is harmless: the next
flusher is given the same batch under the same number, and SQL says whether it has it. Any number of flushers
may run in any number of processes; a batch that one of them has claimed is given to another only after
`claim_timeout`. A failing shard does not delay the others. While SQL or Redis fails, the flusher backs off,
up to 30 s between attempts.
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

from ephemera._futures import cancel_all
from ephemera.errors import InvalidValue
from ephemera.keyspace import check_durations
from ephemera.patterns.write_behind._batches import Batch, Sealed, SequenceRegressed, Sink
from ephemera.patterns.write_behind._counters import BoundCounters
from ephemera.patterns.write_behind._records import BoundRecords

FlushSource: TypeAlias = BoundCounters | BoundRecords[Any]
OnApplied: TypeAlias = Callable[[Batch], Awaitable[object]]

log = logging.getLogger("ephemera.write_behind")

_MAX_POLL = 5.0  # seconds between checks for due batches
_FIRST_BACKOFF = 0.1  # seconds after a failure, doubled each time
_MAX_BACKOFF = 30.0
_LAST_FLUSH = 10.0  # seconds that leaving the block may take
_CONCURRENCY = 4  # shards that one flusher writes at the same time, each on its own SQL connection


@dataclass(slots=True)
class Flushed:
    """The outcome of one flush."""

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    """Rows that SQL rejected; they are in its table of rejected rows, with the reason."""
    duplicates: int = 0
    """Batches that SQL had already: a flusher died, or was overtaken, before it removed them."""
    skipped: int = 0
    """Shards that another flusher has claimed."""


class Flusher:
    """Flushes the counters or records of a store to a sink.

        async with Flusher(store[VIEWS], sink):      # in the background, and all of it at the block's end
            ...
        await Flusher(store[VIEWS], sink).flush()    # now, once

    Leaving the block flushes everything, for at most ten seconds. What that leaves stays in Redis for the
    next flusher; `failure` says why.

    Args:
        source: What is flushed: `store[COUNTERS]` or `store[RECORDS]`.
        sink: Where to: a `CounterTable`, a `RecordTable`, or a sink of yours.
        on_applied: Awaited with each batch that is in SQL, at least once. A batch whose `on_applied` fails is
            kept and brought again.
        flush_every: The age at which batches are due, instead of the declared one.
        claim_timeout: How long after `write_delay` a batch is left to a flusher that does not finish it.
        write_delay: How long a batch waits between sealing and writing. Two seconds suit a server that may
            lose its last second (appendfsync everysec, a failover): what SQL has cannot come back unsealed.
            Give zero only where every acknowledged write is on disk (appendfsync always) or none needs to be.

    """

    def __init__(
        self,
        source: FlushSource,
        sink: Sink,
        *,
        on_applied: OnApplied | None = None,
        flush_every: timedelta | None = None,
        claim_timeout: timedelta = timedelta(seconds=30),
        write_delay: timedelta = timedelta(seconds=2),
    ) -> None:
        name, shards = source.declared.name, source.declared.shards
        flush_every = shards.flush_every if flush_every is None else flush_every
        check_durations(name, flush_every=flush_every, claim_timeout=claim_timeout, write_delay=write_delay)
        if write_delay < timedelta(0) or claim_timeout <= timedelta(0):
            given = f"claim_timeout={claim_timeout}, write_delay={write_delay}"
            raise InvalidValue(name, "a positive claim_timeout and a write_delay of at least 0", given)
        if flush_every <= timedelta(0):
            raise InvalidValue(name, "a positive flush_every", str(flush_every))
        _check_tables(source, sink)
        self.failure: Exception | None = None
        """Why the last round in the background, or the flush at the block's end, failed; None otherwise."""
        self._name = name
        self._shards = shards
        self._queue = source._queue
        self._sink = sink
        self._on_applied = on_applied
        self._flush_every = flush_every.total_seconds()
        self._claim = round((write_delay + claim_timeout).total_seconds() * 1000)
        self._write_delay = write_delay.total_seconds()
        self._id = f"{socket.gethostname()}/{os.getpid()}-{secrets.token_hex(4)}"
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        self._task: asyncio.Task[None] | None = None

    async def flush(self) -> Flushed:
        """Flush everything now; the first error is raised after every shard was tried."""
        return await self._flush_shards(max_age=0)

    async def run(self) -> None:
        """Flush what is due, forever."""
        max_age = round(self._flush_every * 1000)
        poll, backoff = min(self._flush_every / 2, _MAX_POLL), _FIRST_BACKOFF
        while True:
            try:
                await self._flush_shards(max_age)
            except Exception as problem:
                self.failure = problem
                log.warning("%s: flush failed, retrying: %s", self._name, problem)
                await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
                backoff = min(2 * backoff, _MAX_BACKOFF)
            else:
                self.failure, backoff = None, _FIRST_BACKOFF
                await asyncio.sleep(poll)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"flusher of {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            await cancel_all([task])
        try:
            async with asyncio.timeout(_LAST_FLUSH):
                await self.flush()
        except Exception as problem:  # the backlog stays in Redis; an error of the block must not be hidden
            self.failure = problem
            log.warning("%s: the last flush failed, the next flusher continues: %r", self._name, problem)
        else:
            self.failure = None

    async def _flush_shards(self, max_age: int) -> Flushed:
        flushed = Flushed()
        flushes = (self._flush_shard(shard, max_age, flushed) for shard in range(self._shards.count))
        for outcome in await asyncio.gather(*flushes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        return flushed

    async def _flush_shard(self, shard: int, max_age: int, flushed: Flushed) -> None:
        """Flush batch after batch, until one that was sealed here had the last of what was pending."""
        new_pass = True
        while True:
            epoch = secrets.token_hex(8)
            sealed = await self._queue.seal(shard, self._id, self._claim, epoch, max_age, new_pass=new_pass)
            if not isinstance(sealed, Sealed):
                flushed.skipped += sealed == "claimed elsewhere"
                return
            new_pass = new_pass and not sealed.fresh
            if sealed.age < self._write_delay:
                await asyncio.sleep(self._write_delay - sealed.age)
            async with self._slots:
                applied = await self._apply(sealed, flushed)
            if applied and sealed.fresh and not sealed.more:
                return

    async def _apply(self, sealed: Sealed, flushed: Flushed) -> bool:
        """Write a batch and remove it; False when it has to be claimed again, under a new number."""
        batch = await self._queue.read(sealed)
        outcome = await self._sink.apply(batch)
        if isinstance(outcome, SequenceRegressed):
            log.warning("%r: SQL has a larger number, %d: renumbered", batch, outcome.last_number)
            await self._queue.renumber(batch, outcome.last_number)
            return False
        if outcome.duplicate:
            flushed.duplicates += 1
        else:
            flushed.batches += 1
            flushed.rows += len(batch.rows) - outcome.repeated - outcome.rejected + len(batch.undecodable)
            flushed.rejected += outcome.rejected
        if self._on_applied is not None:
            await self._on_applied(batch)
        await self._queue.acknowledge(batch)
        return True


def _check_tables(source: FlushSource, sink: Sink) -> None:
    """Refuse a sink for PostgreSQL whose tables are not those that the declaration migrates."""
    tables = getattr(sink, "tables", None)
    if tables is not None and tables.sql_schema.key != source.declared.sql_schema.key:
        declared = source.declared.tables or "the default tables"
        raise InvalidValue(source.declared.name, f"a sink with {declared}, as it is declared", repr(tables))
