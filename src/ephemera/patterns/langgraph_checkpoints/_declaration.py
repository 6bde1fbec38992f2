"""The declaration of a graph's threads: a hash for each, and a set for each run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Fixed, Role, Store, check_declaration
from ephemera.patterns.langgraph_checkpoints._hash_storage import HashThreads
from ephemera.patterns.langgraph_checkpoints._saver import GraphSaver
from ephemera.sync import SyncStore

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol


class GraphCheckpoints:
    """The threads of graphs: `store[THREADS]` is the checkpointer for `compile`.

    `lifetime` counts from a thread's last change. `history` is how many checkpoints of each namespace are
    kept; all of them unless it is given. `serde` is LangGraph's, its own by default.
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
        purpose: str = "What a graph knows in a thread, after each of its steps",
        if_lost: str = "the thread begins anew",
    ) -> None:
        check_declaration(catalogue, pattern)
        if pattern.count("{") != 1 or "{thread_id}" not in pattern:
            raise InvalidDeclaration(pattern, "its one field is {thread_id}", "as in graph:{thread_id}")
        if not isinstance(cast("Any", lifetime), Fixed):
            raise InvalidDeclaration(
                pattern, f"threads cannot live {lifetime}", "use fixed(days=7), from each change"
            )
        if history is not None and (type(history) is not int or history < 1):
            raise InvalidDeclaration(pattern, f"history={history!r} keeps nothing", "give a positive number")
        self._history = history or 0
        self._serde = serde
        life = replace(lifetime, outlives=lifetime.outlives or "a step, which renews it")
        self.space = catalogue.mapping(
            pattern,
            bytes,
            lifetime=life,
            role=role,
            purpose=purpose,
            saves="the steps that a graph has behind it",
            invalidated_by=("the thread's deletion, which leaves a mark",),
            if_lost=if_lost,
            sensitive=True,
        )
        self.runs = catalogue.set(
            f"runs:{pattern.replace('{thread_id}', '{run_id}')}",
            str,
            lifetime=replace(life, milliseconds=2 * life.milliseconds),
            role=role,
            purpose="The threads that a run has checkpoints in",
            if_lost="the run's checkpoints cannot be deleted by its id; they end with their threads",
        )

    def bind(self, store: Store) -> GraphSaver:
        """The checkpointer of a store."""
        store[self.space]  # refuses a store without it
        threads = HashThreads(self.space, self.runs, lambda: store)
        return GraphSaver(threads, history=self._history, serde=self._serde)

    def blocking(self, store: SyncStore) -> GraphSaver:
        """The checkpointer of a blocking store, for `graph.invoke` in any thread, and after a fork."""
        threads = HashThreads(self.space, self.runs, lambda: store.aio)
        return GraphSaver(threads, history=self._history, serde=self._serde, wait=store.wait)

    def __repr__(self) -> str:
        return f"<GraphCheckpoints {self.space.pattern!r} of {self.space.catalogue}>"
