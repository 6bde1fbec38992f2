"""LangGraph: a checkpointer for threads and for jobs, and a store of memories. Needs the extra `langgraph`.

    THREADS = GraphCheckpoints(catalogue, "graph:{thread_id}", lifetime=fixed(days=7))
    MEMORIES = GraphMemories(catalogue, "memory:{namespace}", lifetime=fixed(days=90))
    graph = builder.compile(checkpointer=store[THREADS], store=store[MEMORIES])
    await graph.ainvoke({"topic": "whales"}, {"configurable": {"thread_id": "t1"}})

    graph = builder.compile(checkpointer=JobSaver(run))       # in a job: see `JobSaver`

Each has LangGraph's synchronous and async methods. Those of an async store serve the coroutines of its event
loop, and threads; those of a synchronous store serve threads, and coroutines of any event loop.

*Keys.* A thread is one hash, and so is a namespace of memories. `runs:...:{run_id}` is a set of the threads
that a run has checkpoints in, if runs have ids. `namespaces:...:{parent}` lists the namespaces below one.

*Lifetimes.* A thread lives as declared from its last change. An item of a namespace has a TTL of its own, or
the declared lifetime, from its last change. The set of a run and the list of namespaces live twice as long.

*Atomicity.* Each call is one script on one hash, so a thread is complete or absent, in a cluster too, and so
is what a batch puts into a namespace. A checkpoint's value is stored once, however many checkpoints have it.

*Fencing.* A checkpoint is not added to a thread after its parent was deleted, so a graph that still runs
cannot revive a deleted thread (`CheckpointLost`). In a job, a worker that has lost the job cannot change or
read anything (`JobLost`).

*When Redis is down or hung.* Calls raise `ConnectionFailed`, and the graph fails. In a job the graph
continues in memory, and a worker that takes over starts from an older state. After an eviction or a flush, a
running graph stores its whole state with its next step, and any other thread starts again. A checkpoint or an
item that cannot be decoded is a miss, and logged.

*Types.* What Redis holds is untrusted: of checkpoints only plain values, messages, and the classes listed in
`types` are built, and a value of another class is refused when it is written. Memories are JSON.
"""

from importlib.util import find_spec

from ephemera.errors import MissingExtra

if find_spec("langgraph") is None or find_spec("langgraph.checkpoint") is None:
    raise MissingExtra("ephemera.adapters.langgraph needs LangGraph", "langgraph", "langgraph.checkpoint")

from ephemera.adapters.langgraph._graph_store import GraphMemories, GraphStore
from ephemera.adapters.langgraph._saver import GraphCheckpoints, GraphSaver, JobSaver

__all__ = ["GraphCheckpoints", "GraphMemories", "GraphSaver", "GraphStore", "JobSaver"]
