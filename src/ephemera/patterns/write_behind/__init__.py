"""Write-behind: counters and records collect in Redis and reach SQL in batches, exactly once.

    VIEWS = DeferredCounters(catalogue, "presentation_view_count", key=["presentation_id"],
                             measures=["view_count"], purpose="Views of presentations")
    await store[VIEWS].add(presentation_id="p1", view_count=1)          # one round trip
    async with Flusher(store[VIEWS], CounterTable(engine, shares, VIEWS)):
        ...                                                             # every minute, and at the end

*Keys.* Each shard has `:pending:{shard}`, a hash of amounts or a list of records; `:sealed:{shard}`, a batch
of counters that is being filled or written; and `:state:{shard}`, the numbers of its batches. The shard is
their hash tag. `:idempotency:{shard}:{idempotency_key}` remembers an addition with an idempotency key.

*Lifetimes.* Idempotency keys live for an hour. Everything else is permanent, because it is not in SQL yet,
and has the role `queue`: an evicting server would lose it.

*Atomicity.* One script adds, with the backlog limit and the idempotency key. One script seals a batch under
a number; counters are moved into it by several calls, so that no call blocks the server for long. One SQL
transaction writes the batch and its number, two seconds later, when the seal is safe on disk. One script
removes the batch, if it is still the one that SQL has. A shard has at most one sealed batch, so its batches
are ordered, and SQL keeps one number per shard: nothing there grows or needs pruning. A flusher may crash at
any point and be replayed. A crash of Redis loses what its persistence loses (nothing with appendfsync
always), a crash of SQL loses nothing. After a flush of all keys, what SQL has stays, the backlog is lost,
and numbers continue.

*When Redis is down.* Additions raise `Unavailable` at once, or go straight to SQL where the caller gave a
sink as `fallback`; with an idempotency key, SQL decides which attempt counts. When Redis hangs or the
connection drops, they raise `OutcomeUnknown`; an addition with an idempotency key may be retried until it is
answered.

*When SQL is down.* The backlog grows to its limit, then additions raise `BacklogFull`; the flusher backs off
and retries. Rows that SQL rejects are stored in SQL with the reason and do not delay the rest.

The sinks for PostgreSQL (`CounterTable`, `RecordTable`, `SinkTables`, `create_tables`) need the extra
`sql`; they are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ephemera.errors import MissingExtra
from ephemera.patterns.write_behind._batches import (
    Applied,
    Batch,
    Row,
    SequenceRegressed,
    Sink,
    Undecodable,
)
from ephemera.patterns.write_behind._counters import BoundCounters, CounterLayout, DeferredCounters
from ephemera.patterns.write_behind._flusher import Flushed, Flusher
from ephemera.patterns.write_behind._records import BoundRecords, DeferredRecords

if TYPE_CHECKING:
    from ephemera.patterns.write_behind._postgres import (
        CounterTable,
        RecordTable,
        RejectedRow,
        SinkTables,
        create_tables,
    )

__all__ = [
    "Applied",
    "Batch",
    "BoundCounters",
    "BoundRecords",
    "CounterLayout",
    "CounterTable",
    "DeferredCounters",
    "DeferredRecords",
    "Flushed",
    "Flusher",
    "RecordTable",
    "RejectedRow",
    "Row",
    "SequenceRegressed",
    "Sink",
    "SinkTables",
    "Undecodable",
    "create_tables",
]

_NEED_SQL = ("CounterTable", "RecordTable", "RejectedRow", "SinkTables", "create_tables")


def __getattr__(name: str) -> Any:
    if name not in _NEED_SQL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}._postgres")
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"the sinks for PostgreSQL need {missing.name}", "sql", missing.name) from None
    return getattr(module, name)
