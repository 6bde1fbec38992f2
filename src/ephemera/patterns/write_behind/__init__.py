"""Write-behind: counters and records gather in Redis and reach SQL in batches, exactly once.

    VIEWS = DeferredCounters(catalogue, "presentation_view_count", key=["presentation_id"],
                             measures=["view_count"], purpose="Views of presentations")
    await store[VIEWS].add(presentation_id="p1", view_count=1)          # one trip
    async with Flusher(store[VIEWS], CounterTable(engine, shares, VIEWS)):
        ...                                                             # every minute

Keys, of each shard, which is their hash tag: `:pending:{shard}`, a hash of amounts or a list of records;
`:sealed:{shard}`, a batch of counters on its way; `:state:{shard}`, the numbers of its batches; all of them
permanent, for they are not in SQL yet, and of role `queue`: an evicting server would lose them.
`:once:{shard}:{addition}`, that an addition with an id was made, for an hour.
Atomic: an addition with its limits and its id; sealing a batch under a number; the batch and its number in
SQL; forgetting a batch if it is still the one that SQL has. A shard has one sealed batch at most, so its
batches have an order, and SQL keeps one number a shard: nothing there grows, nothing needs pruning.
Crashes: of a flusher, at any point, replay harmlessly; of Redis, lose what it forgets and no more (nothing
with appendfsync always); of SQL, nothing. Emptied: what SQL has stays, what waited is lost, numbers go on.
Down: additions raise `Unavailable` at once, or go straight to SQL where the caller gave a sink, `otherwise`.
Hung, or lost on the way: `OutcomeUnknown`; an addition with `once` may be repeated until it is answered.
SQL down: the backlog grows to its limit, then `BacklogFull`; the flusher tries again, more and more seldom.
What SQL refuses is put aside in SQL, with the reason, and does not hold up the rest.
The sinks for PostgreSQL are in `ephemera.patterns.write_behind._postgres` (the extra `sql`).
"""

from ephemera.patterns.write_behind._batches import Batch, Behind, Row, Sink, Unread, Written
from ephemera.patterns.write_behind._counters import BoundCounters
from ephemera.patterns.write_behind._declaration import DeferredCounters, DeferredRecords
from ephemera.patterns.write_behind._flusher import Flushed, Flusher
from ephemera.patterns.write_behind._records import BoundRecords

__all__ = [
    "Batch",
    "Behind",
    "BoundCounters",
    "BoundRecords",
    "DeferredCounters",
    "DeferredRecords",
    "Flushed",
    "Flusher",
    "Row",
    "Sink",
    "Unread",
    "Written",
]
