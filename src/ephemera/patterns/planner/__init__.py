"""Planner: rebuilds what a user sees when enough is new, or enough time has passed, and the user is active.

    FEED = Planner(catalogue, metadata, plans={"free": Plan(novelty=20, every=..., ...)})
    planner = store[FEED].using(engine)
    await planner.publish("news", text="...")           # SQL, then the channel's mark
    await planner.tick(enqueue)                         # hands over who is due: await enqueue([Task, ...])
    await planner.rebuild("ann", build)                 # the worker: lock, recount, build, save

Keys: `ch:{channel_id}`, `hwm:{user_id}` and `us:{user_id}`, copies of SQL rows, for two days;
`dirty:channels`, a sorted set of channels by when they were marked last, for a week after its last mark;
`enq:user:{user_id}`, who was handed over, for 300 s or until the worker ends; `lock:user:{user_id}` and
`lock:planner` (see `locks`).
Atomic: an insight and its seq (one transaction); marking and removing dirty channels, which stay when they
were marked again since they were read; clusters, version and high-water marks (one transaction, by the
latest fence only, from the version it began with). Copies move forward only.
Truth: SQL has everything. A user who is due and was not handed over, or was and nobody came back, has a
moment in SQL at which to be looked at again; so a tick or a worker may die anywhere, with Redis or without.
Down or hung: writes go to SQL alone; ticks read SQL, bounded, from the same tick on; runs are kept apart by
the user's row. Back: the dirty channels are rebuilt from those with an insight since the last complete look,
and copies are made as they are missed. Emptied or evicted unnoticed: the same within `sweep_every`.
Cost: a tick is a handful of SQL statements, and two trips to Redis for every few thousand users.
"""

from importlib.util import find_spec

if find_spec("sqlalchemy") is None:
    raise ModuleNotFoundError("the planner needs SQL: pip install 'ephemera-data[sql]'", name="sqlalchemy")

from ephemera.patterns.planner._declaration import ChannelState, Planner, UserState
from ephemera.patterns.planner._plans import Facts, Plan, Task, Verdict, decide
from ephemera.patterns.planner._queries import UserRow
from ephemera.patterns.planner._rebuild import AlsoSave, Build, Dataset, Ending, Invalidate, Run, Span
from ephemera.patterns.planner._runtime import BoundPlanner, Status
from ephemera.patterns.planner._tables import PlannerTables
from ephemera.patterns.planner._tick import Enqueue, Tick
from ephemera.patterns.planner._writer import Insight

__all__ = [
    "AlsoSave",
    "BoundPlanner",
    "Build",
    "ChannelState",
    "Dataset",
    "Ending",
    "Enqueue",
    "Facts",
    "Insight",
    "Invalidate",
    "Plan",
    "Planner",
    "PlannerTables",
    "Run",
    "Span",
    "Status",
    "Task",
    "Tick",
    "UserRow",
    "UserState",
    "Verdict",
    "decide",
]
