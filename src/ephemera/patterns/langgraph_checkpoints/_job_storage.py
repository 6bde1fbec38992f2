"""A job's graph: its thread is the job, and its state is in the job's checkpoint.

    async def generate(run: Run, topic: str) -> str:
        saver = JobSaver(run)
        graph = builder.compile(checkpointer=saver)
        state = await graph.ainvoke(await saver.input({"topic": topic}), saver.config, durability="sync")

What is saved is fenced as the rest of the checkpoint is: a worker that lost the job is refused, reading and
writing, with `JobLost`. It is renewed with the checkpoint, given to the worker that takes over, and gone when
the job has ended. The newest state of each namespace is kept, and no history.

Redis down: the graph goes on in memory, as the job's steps do, and says so in the log. A worker that takes
over then begins at an older state, or at the graph's start. So a node that must not be repeated does its work
in `run.step` or `run.transact`, which SQL remembers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ephemera.errors import ConnectionFailed, InvalidValue, ServerError
from ephemera.keyspace import Stats
from ephemera.patterns.jobs import Run
from ephemera.patterns.langgraph_checkpoints._saver import GraphSaver
from ephemera.patterns.langgraph_checkpoints._threads import refuse_enormous
from ephemera.wire import Arg, Script

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

T = TypeVar("T")
_log = logging.getLogger("ephemera.langgraph")


class JobSaver(GraphSaver):
    """The checkpointer of a job's graph."""

    def __init__(self, run: Run, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(JobThreads(run), history=1, serde=serde)
        self.config: RunnableConfig = {"configurable": {"thread_id": run.id}}
        """What the graph is invoked with."""

    async def input(self, first: T) -> T | None:
        """What to invoke the graph with: `first`, or None, by which LangGraph goes on from a checkpoint."""
        return first if await self.aget_tuple(self.config) is None else None


class JobThreads:
    """The one thread of a job."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.stats = Stats()

    async def run(self, thread_id: str, script: Script, /, *arguments: Arg) -> Any:
        """The reply of a script; `JobLost` when a later worker has the job, None without Redis."""
        if thread_id != self._run.id:
            raise InvalidValue(f"the graph of the job {self._run.id}", "this thread alone", repr(thread_id))
        refuse_enormous(f"the graph of the job {self._run.id}", arguments)
        try:
            return await self._run.checkpoint.run_script(script, *arguments)
        except (ConnectionFailed, ServerError) as problem:
            _log.warning("the graph of the job %s goes on without a checkpoint: %s", self._run.id, problem)
            return None

    async def note(self, _thread_id: str, _run_id: str) -> None:
        """Nothing: there is one thread to look for runs in."""

    async def of_runs(self, _run_ids: Collection[str]) -> Collection[str]:
        """The job itself."""
        return (self._run.id,)

    async def copy(self, _source: str, target: str) -> None:
        """Refused: a job has one thread."""
        raise InvalidValue(f"the graph of the job {self._run.id}", "this thread alone", repr(target))
