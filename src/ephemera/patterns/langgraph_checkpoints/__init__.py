"""LangGraph's checkpointer: a graph goes on where it was, in any process, and in the job that runs it.

    THREADS = GraphCheckpoints(catalogue, "graph:{thread_id}", lifetime=fixed(days=7))
    graph = builder.compile(checkpointer=store[THREADS])
    await graph.ainvoke({"topic": "whales"}, {"configurable": {"thread_id": "t1"}})

    graph = builder.compile(checkpointer=JobSaver(run))       # in a job: see `in_jobs`

Keys: the thread, a hash with everything that is known of it; `runs:...:{run_id}`, a set of the threads that a
run is in, only where runs have ids. Lifetimes: as declared, from the thread's last change; a run's set twice
that. Atomic: each call is one script on one hash, so a thread is whole or gone, in a cluster too. A value is
stored once, however many checkpoints have it. Fenced: a checkpoint is not added to one that was deleted, so a
graph that still runs cannot bring a deleted thread back (`CheckpointLost`); in a job, a worker that lost it
cannot change or read anything (`JobLost`).
Redis down or hung: `ConnectionFailed`, and the graph fails; in a job it goes on in memory, and who takes over
begins at an older state. Emptied or evicted: the graph that runs stores the whole state with its next step,
and a thread that nobody runs begins anew. What cannot be read is a miss, and logged.
"""

from importlib.util import find_spec

if find_spec("langgraph") is None or find_spec("langgraph.checkpoint") is None:
    raise ModuleNotFoundError(
        "graph checkpoints need LangGraph: pip install 'ephemera-data[langgraph]'",
        name="langgraph.checkpoint",
    )

from ephemera.patterns.langgraph_checkpoints._declaration import GraphCheckpoints
from ephemera.patterns.langgraph_checkpoints._job_storage import JobSaver
from ephemera.patterns.langgraph_checkpoints._saver import GraphSaver

__all__ = ["GraphCheckpoints", "GraphSaver", "JobSaver"]
