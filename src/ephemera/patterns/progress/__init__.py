"""Progress streams: every listener gets each event once and in order, or learns that it missed some.

    PROGRESS: Progress[SlideDone | Done] = Progress(
        catalogue, "gen_progress:{job_id}", SlideDone | Done, wake="pubsub:gen_progress", terminal=Done
    )
    await store[PROGRESS].append(SlideDone(3), job_id="j1")
    async with store[PROGRESS].listen(job_id="j1", after=last_event_id, snapshot=load_job) as updates:
        async for update in updates: ...                # a `ProgressEntry`, or a `Missed` with a snapshot

*Keys.* A stream for each job keeps its newest `max_entries` (200), for `lifetime` (2 h) after the last entry.
One channel, `wake`, carries the key of a stream that has grown, and no data.

*Atomicity.* One script gives an entry its id, trims the stream, sets its lifetime and wakes the listeners. A
script of yours can do the same together with its own work (`progress_script`).

*Guarantees.* A listener gets every event after its position once and in order; or a `Missed`
(`recovered: false`) that carries a snapshot by the application, followed by the entries of the stream that it
did not get. That is the case if the stream was trimmed past its position, expired, was lost, was started
again, or was restored from an older copy. A new listener of an empty stream begins with a snapshot, too,
which says `recovered: true`. Listening ends after a terminal event, or when the snapshot says so; `reopen`
lets a stream continue after its terminal event, which listeners then ignore. The snapshot is also loaded
while a stream is quiet and when a listener reconnects to find nothing new, because the terminal event may be
lost, and SQL knows.

*Sharing.* All listeners of a process share one subscription, one read per wake and stream, and one copy of
its entries. A slow listener is not waited for and queues nothing: it continues from its position, or has
missed something.

*When Redis is down or hung.* `append` raises `ConnectionFailed`. A new listener gets a snapshot at once, an
existing one waits, and both continue when the server is back. A lost wake-up costs a second. After an
eviction or a flush, listeners get a `Missed`.
"""

from ephemera.patterns.progress._declaration import (
    BoundProgress,
    EntryArguments,
    Progress,
    entry_arguments,
    progress_script,
    reopen_arguments,
)
from ephemera.patterns.progress._entries import ENDED, Missed, ProgressEntry, Snapshot
from ephemera.patterns.progress._listener import Listener, Update

__all__ = [
    "ENDED",
    "BoundProgress",
    "EntryArguments",
    "Listener",
    "Missed",
    "Progress",
    "ProgressEntry",
    "Snapshot",
    "Update",
    "entry_arguments",
    "progress_script",
    "reopen_arguments",
]
