"""The declaration of a graph's threads: a hash for each, and a set for each run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Role, Store, check_declaration
from ephemera.patterns.langgraph_checkpoints._saver import GraphSaver
from ephemera.patterns.langgraph_checkpoints._thread_storage import HashThreadStorage
from ephemera.sync import SyncStore

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol


class GraphCheckpoints:
    """The threads of graphs: `store[THREADS]` is the checkpointer for `compile`.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of a thread; its one field is `{thread_id}`.
        lifetime: How long a thread is kept after its last change.
        history: How many checkpoints of each namespace are kept; all by default.
        serde: A LangGraph serializer; LangGraph's default if none is given.
        role: The server's role; `queue` for threads that must not be evicted.
        purpose: What the threads are for, for the documentation of the catalogue.
        if_lost: What is lost with a thread, for the documentation of the catalogue.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lifetime: Fixed,
        history: int | None = None,
        serde: SerializerProtocol | None = None,
        role: Role = "cache",
        purpose: str = "The state of a graph in a thread, after each of its steps",
        if_lost: str = "the thread starts again",
    ) -> None:
        check_declaration(catalogue, pattern)
        if pattern.count("{") != 1 or "{thread_id}" not in pattern:
            raise InvalidDeclaration(pattern, "its one field is {thread_id}", "as in graph:{thread_id}")
        if not isinstance(cast("Any", lifetime), Fixed):
            raise InvalidDeclaration(
                pattern, f"threads cannot have the lifetime {lifetime}", "use fixed(days=7), from each change"
            )
        if history is not None and (type(history) is not int or history < 1):
            raise InvalidDeclaration(pattern, f"history={history!r} keeps nothing", "use a positive number")
        self._history = history or 0
        self._serde = serde
        lifetime = replace(lifetime, outlives=lifetime.outlives or "a step, which renews it")
        self.keyspace = catalogue.mapping(
            pattern,
            bytes,
            lifetime=lifetime,
            role=role,
            purpose=purpose,
            saves="repeating the completed steps of a graph",
            invalidated_by=("the thread's deletion, which leaves a mark",),
            if_lost=if_lost,
            sensitive=True,
        )
        self.runs = catalogue.set(
            f"runs:{pattern.replace('{thread_id}', '{run_id}')}",
            str,
            lifetime=replace(lifetime, milliseconds=2 * lifetime.milliseconds),
            role=role,
            purpose="The threads that a run has checkpoints in",
            if_lost="the run's checkpoints cannot be deleted by its id; they expire with their threads",
        )

    def bind(self, store: Store) -> GraphSaver:
        """The checkpointer of a store."""
        store[self.keyspace]  # refuses a store without the catalogue
        threads = HashThreadStorage(self.keyspace, self.runs, lambda: store)
        return GraphSaver(threads, history=self._history, serde=self._serde)

    def sync_saver(self, store: SyncStore) -> GraphSaver:
        """The checkpointer of a `SyncStore`, for `graph.invoke` in any thread, and after a fork."""
        threads = HashThreadStorage(self.keyspace, self.runs, lambda: store.aio)
        return GraphSaver(threads, history=self._history, serde=self._serde, wait=store.wait)

    def __repr__(self) -> str:
        return f"<GraphCheckpoints {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"
