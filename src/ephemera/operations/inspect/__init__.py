"""Inspection: the state of locks, events, limits, sessions, jobs, the planner and write-behind on a server.

What `ephemera locks`, `events` and `jobs` print and the console shows. Everything is read through bounded
requests, so a server with millions of keys costs no more than a small one; contents of sensitive keyspaces
are never read. Only `replay_dead_letters`, `replay_events`, `change_jobs` and `reset_limit` change anything.

Jobs and the planner need the extra `sql`, and are imported on first use.

*When Redis is down.* Calls raise `ConnectionFailed`; what needs only the database still works.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ephemera.operations.inspect._declarations import declared_jobs, declared_planners
from ephemera.operations.inspect._events import (
    EventStream,
    PendingEvent,
    dead_letters,
    pending_events,
    replay_dead_letters,
    replay_events,
    stream_infos,
)
from ephemera.operations.inspect._key_finder import KeyFinder
from ephemera.operations.inspect._limits import LimitStatus, limit_status, reset_limit, throttled_subjects
from ephemera.operations.inspect._locks import LockState, held_locks, read_locks
from ephemera.operations.inspect._sessions import (
    RevocationEntry,
    RevocationFinder,
    SessionSummary,
    SignedInUser,
    UserFinder,
    list_sessions,
    tokens_revoked_until,
)
from ephemera.operations.inspect._write_behind import Backlog, FlushingBatch, backlog

if TYPE_CHECKING:
    from ephemera.operations.inspect._jobs import (
        MAX_COUNTED_JOBS,
        MAX_RETRIED_JOBS,
        ChangedJobs,
        JobCounts,
        JobServers,
        JobSteps,
        change_bound_jobs,
        change_jobs,
        count_jobs,
        get_job,
        list_jobs,
        list_queues,
        list_schedules,
        set_paused,
    )
    from ephemera.operations.inspect._planner import (
        MAX_COUNTED_USERS,
        DirtyChannels,
        EnqueuedUser,
        PlannerState,
        dirty_channels,
        planner_state,
    )

__all__ = [
    "MAX_COUNTED_JOBS",
    "MAX_COUNTED_USERS",
    "MAX_RETRIED_JOBS",
    "Backlog",
    "ChangedJobs",
    "DirtyChannels",
    "EnqueuedUser",
    "EventStream",
    "FlushingBatch",
    "JobCounts",
    "JobServers",
    "JobSteps",
    "KeyFinder",
    "LimitStatus",
    "LockState",
    "PendingEvent",
    "PlannerState",
    "RevocationEntry",
    "RevocationFinder",
    "SessionSummary",
    "SignedInUser",
    "UserFinder",
    "backlog",
    "change_bound_jobs",
    "change_jobs",
    "count_jobs",
    "dead_letters",
    "declared_jobs",
    "declared_planners",
    "dirty_channels",
    "get_job",
    "held_locks",
    "limit_status",
    "list_jobs",
    "list_queues",
    "list_schedules",
    "list_sessions",
    "pending_events",
    "planner_state",
    "read_locks",
    "replay_dead_letters",
    "replay_events",
    "reset_limit",
    "set_paused",
    "stream_infos",
    "throttled_subjects",
    "tokens_revoked_until",
]

_SQL_NAMES = {
    "_jobs": "MAX_COUNTED_JOBS MAX_RETRIED_JOBS ChangedJobs JobCounts JobServers JobSteps change_bound_jobs "
    "change_jobs count_jobs get_job list_jobs list_queues list_schedules set_paused",
    "_planner": "MAX_COUNTED_USERS DirtyChannels EnqueuedUser PlannerState dirty_channels planner_state",
}
_MODULES = {name: module for module, names in _SQL_NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
