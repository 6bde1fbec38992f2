"""Where the state of threads is: a hash for each (`in_hashes`), or the checkpoint of a job (`in_jobs`).

Both run the same scripts, which take a fence, a worker and a lifetime before anything else. Outside of jobs
the fence is 0, and refuses nobody.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from ephemera.errors import InvalidValue
from ephemera.keyspace import Stats
from ephemera.wire import Arg, Script

_PACKAGE = "ephemera.patterns.langgraph_checkpoints"
MOST_BYTES = 32 * 1024 * 1024
"""Of one write: a larger one would hold the server up for all others."""


def _on_thread(verb: str) -> Script:
    """The script `lua/<verb>.lua`, with what all of them share before it."""
    return Script.load(_PACKAGE, verb, shared=(f"{_PACKAGE}:thread",))


PUT, WRITE, GET, LIST = map(_on_thread, ("put", "write", "get", "list"))
DELETE, FORGET, PRUNE = map(_on_thread, ("delete", "forget", "prune"))
RUNS, COPY = map(_on_thread, ("runs", "copy"))

DELETED = b"_graph:deleted"
"""The mark of a deletion, which is its thread's own."""


class Threads(Protocol):
    """What a saver needs of the place where its threads are."""

    @property
    def stats(self) -> Stats:
        """What was read and written."""

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        """The reply of a script about a thread; None when the graph should go on without Redis."""

    async def note(self, thread_id: str, run_id: str) -> None:
        """Have `of_runs` find a thread by a run that is about to add to it."""

    async def of_runs(self, run_ids: Collection[str]) -> Collection[str]:
        """The threads that have checkpoints of these runs, and perhaps others."""

    async def copy(self, source: str, target: str) -> None:
        """Fill a thread that is empty with all that another has."""


def refuse_enormous(name: str, arguments: tuple[Arg, ...]) -> None:
    """Raise `InvalidValue` for more than one write should carry."""
    size = sum(len(part) for part in arguments if isinstance(part, bytes))
    if size > MOST_BYTES:
        raise InvalidValue(
            name,
            f"checkpoints of at most {MOST_BYTES >> 20} MiB (keep what is large elsewhere, and its id here)",
            f"{size / (1 << 20):.1f} MiB",
        )
