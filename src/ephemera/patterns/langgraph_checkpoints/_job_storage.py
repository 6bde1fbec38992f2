"""A graph that runs in a job: the job is its thread, and the job's checkpoint holds its state.

    async def generate(run: Run, topic: str) -> str:
        saver = JobSaver(run)
        graph = builder.compile(checkpointer=saver)
        state = await graph.ainvoke(await saver.input({"topic": topic}), saver.config, durability="sync")

The state is fenced like the rest of the checkpoint: a worker that has lost the job is refused with `JobLost`,
when reading and when writing. It is renewed with the checkpoint, passed to the worker that takes over, and
deleted when the job has ended. Only the newest state of each namespace is kept.

When Redis is down, the graph continues in memory, as the job's steps do, and logs it. A worker that takes
over then starts from an older state, or from the graph's start. So a node that must not be repeated does its
work in `run.step` or `run.transact`, which SQL records.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ephemera.errors import ConnectionFailed, InvalidValue, ServerError
from ephemera.keyspace import Stats
from ephemera.patterns.langgraph_checkpoints._saver import GraphSaver
from ephemera.patterns.langgraph_checkpoints._thread_storage import check_size
from ephemera.wire import Arg, Script

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from ephemera.patterns.jobs import Run  # needs the extra `jobs`, which graphs alone do not

T = TypeVar("T")
_log = logging.getLogger("ephemera.langgraph")


class JobSaver(GraphSaver):
    """The checkpointer of a job's graph."""

    def __init__(self, run: Run, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(JobThreadStorage(run), history=1, serde=serde)
        self.config: RunnableConfig = {"configurable": {"thread_id": run.id}}
        """The configuration to invoke the graph with."""

    async def input(self, first: T) -> T | None:
        """The input to invoke the graph with: `first`, or None to continue from its checkpoint."""
        return first if await self.aget_tuple(self.config) is None else None


class JobThreadStorage:
    """The one thread of a job."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.stats = Stats()

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        """Run a script; `JobLost` if a later worker has the job, None if Redis is down."""
        if thread_id != self._run.id:
            raise InvalidValue(f"the graph of job {self._run.id}", "only its own thread", repr(thread_id))
        check_size(f"the graph of job {self._run.id}", arguments)
        try:
            return await self._run.checkpoint.run_script(script, *arguments)
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("the graph of job %s continues without a checkpoint: %s", self._run.id, problem)
            return None

    async def register_run(self, _thread_id: str, _run_id: str) -> None:
        """Do nothing: all runs are in the one thread."""

    async def threads_of_runs(self, _run_ids: Collection[str]) -> Collection[str]:
        """The job itself."""
        return (self._run.id,)

    async def copy(self, _source: str, target: str) -> None:
        """Refuse: a job has one thread."""
        raise InvalidValue(f"the graph of job {self._run.id}", "only its own thread", repr(target))
