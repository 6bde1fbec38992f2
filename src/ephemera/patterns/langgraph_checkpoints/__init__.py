"""A LangGraph checkpointer: a graph continues where it was, in any process, and in the job that runs it.

    THREADS = GraphCheckpoints(catalogue, "graph:{thread_id}", lifetime=fixed(days=7))
    graph = builder.compile(checkpointer=store[THREADS])
    await graph.ainvoke({"topic": "whales"}, {"configurable": {"thread_id": "t1"}})

    graph = builder.compile(checkpointer=JobSaver(run))       # in a job: see `JobSaver`

*Keys.* A thread is one hash. `runs:...:{run_id}` is a set of the threads that a run has checkpoints in, if
runs have ids.

*Lifetimes.* As declared, from the thread's last change; the set of a run lives twice as long.

*Atomicity.* Each call is one script on one hash, so a thread is complete or absent, in a cluster too. A value
is stored once, however many checkpoints have it.

*Fencing.* A checkpoint is not added to a thread after its parent was deleted, so a graph that still runs
cannot revive a deleted thread (`CheckpointLost`). In a job, a worker that has lost the job cannot change or
read anything (`JobLost`).

*When Redis is down or hung.* Calls raise `ConnectionFailed`, and the graph fails. In a job the graph
continues in memory, and a worker that takes over starts from an older state. After an eviction or a flush, a
running graph stores its whole state with its next step, and any other thread starts again. A checkpoint that
cannot be decoded is a miss, and logged.
"""

from importlib.util import find_spec

from ephemera.errors import MissingExtra

if find_spec("langgraph") is None or find_spec("langgraph.checkpoint") is None:
    raise MissingExtra("graph checkpoints need LangGraph", "langgraph", "langgraph.checkpoint")

from ephemera.patterns.langgraph_checkpoints._declaration import GraphCheckpoints
from ephemera.patterns.langgraph_checkpoints._job_storage import JobSaver
from ephemera.patterns.langgraph_checkpoints._saver import GraphSaver

__all__ = ["GraphCheckpoints", "GraphSaver", "JobSaver"]
