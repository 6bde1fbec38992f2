"""Planner: rebuilds a user's view when enough is new or enough time has passed, and the user is active.

    FEED = Planner(catalogue, metadata, plans={"free": Plan(novelty=20, every=..., ...)})
    async with connect(url, catalogue, resources={FEED: engine}) as store:
        planner = store[FEED]
        await planner.publish("news", text="...")    # SQL, then the channel's mark
        await planner.tick(enqueue)                  # await enqueue([Task, ...]) for the users who are due
        await planner.rebuild("ann", build)          # in a worker: lock, recount, build, save

*Keys.* `ch:{channel_id}`, `hwm:{user_id}` and `us:{user_id}` cache SQL rows. `dirty:channels` is a sorted
set of channels by when they became dirty. `enq:user:{user_id}` marks an enqueued user.
`lock:user:{user_id}` and `lock:planner` are locks.

*Lifetimes.* Cached rows live for two days, the dirty channels for a week after the last mark, an enqueued
mark for 300 s or until the worker finishes.

*Atomicity.* An insight and its seq are one transaction. One script marks dirty channels, and one clears
those that were not marked again since they were read. Clusters, version and high-water marks are one
transaction, which only the latest fencing token can make, from the version it began with. Cached rows move
forward only. SQL is the source of truth: a user who is due and was not enqueued, or was enqueued and never
finished, has a time for a recheck in SQL. So a tick or a worker may die anywhere, with Redis or without. A
user whose runs fail is retried at growing intervals, and parked after `max_attempts`.

*When Redis is down.* Writes go to SQL alone. Ticks read SQL, bounded, from the same tick on. The user's row
separates runs. When Redis is back, the dirty channels are rebuilt from those with an insight since the
last complete tick, and rows are cached as they are missed. If Redis was emptied or evicted unnoticed, the
same happens within `sweep_every`.

*Cost.* A tick is a handful of SQL statements, and two round trips to Redis for every few thousand users.

`python -m ephemera.patterns.planner --days 365` simulates a year of traffic with the same decisions.
"""

from importlib.util import find_spec

from ephemera.errors import MissingExtra

if _missing := [name for name in ("sqlalchemy", "psycopg", "alembic") if find_spec(name) is None]:
    raise MissingExtra(f"the planner needs {_missing[0]}", "sql", _missing[0])

from ephemera.patterns.planner._candidates import PlannerCondition, UserExplanation, UserSituation
from ephemera.patterns.planner._planner import BoundPlanner, Planner, PlannerStatus
from ephemera.patterns.planner._queries import ParkedUser, UserRow
from ephemera.patterns.planner._rebuild import (
    Build,
    Dataset,
    Invalidate,
    OnSave,
    RebuildOutcome,
    RebuildRun,
    Span,
)
from ephemera.patterns.planner._simulation import PlanReport, Scenario, SimulationReport, simulate
from ephemera.patterns.planner._tables import PlannerTables
from ephemera.patterns.planner._tick import (
    Enqueue,
    NotDueUser,
    Plan,
    PlannerRetention,
    PlannerTiming,
    Task,
    Tick,
    TickLimits,
    UserFacts,
    Verdict,
    decide,
)
from ephemera.patterns.planner._working_set import ChannelState, UserState
from ephemera.patterns.planner._writer import Insight

__all__ = [
    "BoundPlanner",
    "Build",
    "ChannelState",
    "Dataset",
    "Enqueue",
    "Insight",
    "Invalidate",
    "NotDueUser",
    "OnSave",
    "ParkedUser",
    "Plan",
    "PlanReport",
    "Planner",
    "PlannerCondition",
    "PlannerRetention",
    "PlannerStatus",
    "PlannerTables",
    "PlannerTiming",
    "RebuildOutcome",
    "RebuildRun",
    "Scenario",
    "SimulationReport",
    "Span",
    "Task",
    "Tick",
    "TickLimits",
    "UserExplanation",
    "UserFacts",
    "UserRow",
    "UserSituation",
    "UserState",
    "Verdict",
    "decide",
    "simulate",
]
