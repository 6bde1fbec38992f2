"""Progress: what a job has done so far and does now, to everybody who watches, with no gap and no double.

    PROGRESS: Progress[SlideDone | Done] = Progress(
        catalogue, "gen_progress:{job_id}", SlideDone | Done, wake="pubsub:gen_progress", terminal=Done
    )
    await store[PROGRESS].append(SlideDone(3), job_id="j1")
    async with store[PROGRESS].listen(job_id="j1", after=last_event_id, snapshot=load_job) as updates:
        async for update in updates: ...                # an `Entry`, or a `Missed` with a snapshot

Keys: a stream for each job, its newest `max_entries` (200), for `lifetime` (2 h) after the last; `wake`, one
channel for all of them, which carries the key of a stream that has grown and no data.
Atomic: an entry gets its id, the stream is trimmed and given its lifetime, and listeners are woken, in one
script; another script may do the same along with its own work (`appending`).
Promised: a listener gets every event after its position once and in order, or a `Missed` (`recovered: false`)
that carries a snapshot by the application, and then what the stream still has that it did not get. So it is
told when the stream was trimmed past it, expired, was lost, was begun anew, or came back from an older copy.
It ends after a terminal event, or when the snapshot says so; the snapshot is also asked when all is quiet and
when somebody comes back for nothing new, since the event that ends it may be lost, and SQL knows.
Shared: all listeners of a process have one subscription, one read for each wake and stream, one copy of its
entries. A slow one is not waited for and queues nothing: it takes from where it is, or has missed something.
Down or hung: `append` raises `ConnectionFailed`; who begins to listen gets a snapshot at once, who listens
waits, and both go on when the server is back. A lost wake costs a second. Evicted or emptied: `Missed`.
"""

from ephemera.patterns.progress._declaration import Progress
from ephemera.patterns.progress._entries import ENDED, Entry, Missed, Snapshot
from ephemera.patterns.progress._listener import Listener, Update
from ephemera.patterns.progress._runtime import BoundProgress
from ephemera.patterns.progress._scripts import EntryArguments, appending

__all__ = [
    "ENDED",
    "BoundProgress",
    "Entry",
    "EntryArguments",
    "Listener",
    "Missed",
    "Progress",
    "Snapshot",
    "Update",
    "appending",
]
