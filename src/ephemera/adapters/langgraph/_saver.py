"""LangGraph's checkpointer, the one of a job's graph, and the declaration of threads that a store binds.

The package says what they guarantee, and what happens when Redis is down.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)

from ephemera.adapters._store_access import AsyncAccess, BlockingAccess, StoreAccess
from ephemera.adapters.langgraph._checkpoint_codec import (
    CheckpointKey,
    checkpoint_config,
    decode_checkpoint,
    encode_checkpoint,
    encode_writes,
)
from ephemera.adapters.langgraph._serializer import StrictSerializer
from ephemera.adapters.langgraph._thread_storage import (
    DELETE,
    DELETE_RUNS,
    GET,
    LIST,
    PRUNE,
    PUT,
    WRITE,
    HashThreadStorage,
    JobThreadStorage,
    ThreadStorage,
)
from ephemera.blocking import BlockingStore
from ephemera.errors import CheckpointLost, InvalidDeclaration, InvalidValue, SyncCallInEventLoop
from ephemera.keyspace import Catalogue, Fixed, Role, Store, check_declaration

if TYPE_CHECKING:
    from ephemera.patterns.jobs import Run  # needs the extra `jobs`, which graphs alone do not

T = TypeVar("T")
_NUMBER = re.compile(r"[0-9]{1,32}")  # the beginning of a version
_PAGE = 20  # checkpoints that `alist` reads in a round trip
_log = logging.getLogger("ephemera.langgraph")


class GraphSaver(BaseCheckpointSaver[str]):
    """A checkpointer: pass it to `compile`.

    Args:
        threads: Where the state is stored.
        history: How many checkpoints of each namespace are kept; 0 for all.
        types: Classes that the state may contain, besides plain values and messages.
        wait: Runs a coroutine for the synchronous methods, which a job's graph does not use.

    """

    def __init__(
        self,
        threads: ThreadStorage,
        *,
        history: int = 0,
        types: Iterable[type] = (),
        wait: Callable[[Coroutine[Any, Any, Any]], Any] | None = None,
    ) -> None:
        super().__init__(serde=StrictSerializer(types))
        self._threads = threads
        self._history = history
        self._run_sync = wait or _in_job

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint, or the newest of its namespace if the configuration names none."""
        key = CheckpointKey(config["configurable"].get("checkpoint_ns", ""), get_checkpoint_id(config) or "")
        for found in await self._read(_thread_of(config), [key]):
            return found
        return None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """A thread's checkpoints, the newest first; without `checkpoint_ns`, those of all namespaces.

        `filter` compares metadata, `before` is the config of a checkpoint that they precede, and `limit` is
        how many at most.
        """
        thread_id = _thread_of(config)
        keys = await self._list_keys(thread_id, config or {}, before)
        left = len(keys) if limit is None else limit
        while keys and left > 0:
            page, keys = keys[:_PAGE], keys[_PAGE:]
            for found in await self._read(thread_id, page if filter else page[:left]):
                if left > 0 and all(
                    found.metadata.get(name) == value for name, value in (filter or {}).items()
                ):
                    left -= 1
                    yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with its new values, and return its configuration."""
        thread_id = _thread_of(config)
        encoded = encode_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        if encoded.run:
            await self._threads.register_run(thread_id, encoded.run)
        reply = await self._threads.run(thread_id, PUT, *encoded.arguments(self._history))
        if reply == b"incomplete":  # values of earlier checkpoints have expired, or were lost with Redis
            reply = await self._threads.run(
                thread_id, PUT, *encoded.with_all_values(self.serde).arguments(self._history)
            )
        if reply == b"gone":
            raise CheckpointLost(thread_id, encoded.parent)
        self._threads.stats.writes += 1
        return checkpoint_config(thread_id, encoded.key)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, until the next checkpoint includes them."""
        key = CheckpointKey(
            config["configurable"].get("checkpoint_ns", ""), config["configurable"]["checkpoint_id"]
        )
        arguments = encode_writes(self.serde, key, writes, task_id, task_path)
        await self._threads.run(_thread_of(config), WRITE, *arguments)
        self._threads.stats.writes += 1

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread; a graph that still runs in it cannot bring it back."""
        await self._threads.run(str(thread_id), DELETE)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs in all threads."""
        for thread_id in await self._threads.threads_of_runs(run_ids) if run_ids else ():
            await self._threads.run(thread_id, DELETE_RUNS, *run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread into an empty one."""
        await self._threads.copy(str(source_thread_id), str(target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace and its ancestors, or (`delete`) none.

        `strategy` is `keep_latest` or `delete`.
        """
        scripts = {"keep_latest": PRUNE, "delete": DELETE}
        if strategy not in scripts:
            raise InvalidValue("strategy", " or ".join(scripts), repr(strategy))
        for thread_id in thread_ids:
            await self._threads.run(str(thread_id), scripts[strategy])

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """A version after this one, unique among the branches of a thread, since values are stored by it."""
        found = _NUMBER.match(str(current))
        number = int(found[0]) + 1 if found else 1
        return f"{number:032}.{random.getrandbits(64):016x}"

    # The synchronous methods, for `graph.invoke`.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Synchronous `aget_tuple`."""
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Synchronous `alist`; all checkpoints are read before the first is returned.

        `filter`, `before` and `limit` are those of `alist`.
        """
        return iter(self._wait(_all(self.alist(config, filter=filter, before=before, limit=limit))))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Synchronous `aput`."""
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Synchronous `aput_writes`."""
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Synchronous `adelete_thread`."""
        self._wait(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Synchronous `adelete_for_runs`."""
        self._wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Synchronous `acopy_thread`."""
        self._wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Synchronous `aprune`.

        `strategy` is that of `aprune`.
        """
        self._wait(self.aprune(thread_ids, strategy=strategy))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self._run_sync(work)
        return result

    async def _read(self, thread_id: str, keys: Sequence[CheckpointKey]) -> Collection[CheckpointTuple]:
        """The checkpoints of these keys that exist and can be decoded."""
        reply = await self._threads.run(thread_id, GET, *(key.text for key in keys))
        stats, read = self._threads.stats, []
        for found in reply or ():
            try:
                read.append(decode_checkpoint(self.serde, thread_id, found))
            except Exception as problem:  # the serializer may raise anything
                stats.undecodable += 1
                _log.warning("a checkpoint of thread %s cannot be decoded: %r", thread_id, problem)
        stats.hits += len(read)
        stats.misses += len(keys) - len(read)
        return read

    async def _list_keys(
        self, thread_id: str, config: RunnableConfig, before: RunnableConfig | None
    ) -> Sequence[CheckpointKey]:
        """The checkpoints to list, the newest first."""
        configurable = config["configurable"]
        namespace, only = configurable.get("checkpoint_ns"), configurable.get("checkpoint_id")
        listed = await self._threads.run(thread_id, LIST) or ()
        numbers = {CheckpointKey.parse(key): number for key, number in listed}
        earlier = get_checkpoint_id(before) if before else None
        limit = next((numbers[key] for key in numbers if key.id == earlier), None)

        def is_listed(key: CheckpointKey) -> bool:
            return (
                namespace in (None, key.namespace)
                and only in (None, "", key.id)
                and (earlier is None or (key.id < earlier if limit is None else numbers[key] < limit))
            )

        return sorted(filter(is_listed, numbers), key=numbers.__getitem__, reverse=True)


def _thread_of(config: RunnableConfig | None) -> str:
    thread_id = (config or {}).get("configurable", {}).get("thread_id")
    if thread_id in (None, ""):
        raise InvalidValue(
            "configurable", "a thread_id, as in {'configurable': {'thread_id': '7'}}", repr(thread_id)
        )
    return str(thread_id)


async def _all(found: AsyncIterator[T]) -> Sequence[T]:
    return [each async for each in found]


def _in_job(work: Coroutine[Any, Any, Any]) -> NoReturn:
    work.close()
    raise SyncCallInEventLoop("a job's graph is async: `await graph.ainvoke(...)`")


class JobSaver(GraphSaver):
    """The checkpointer of a graph that runs in a job: the job is its thread, its checkpoint holds the state.

        async def generate(run: Run, topic: str) -> str:
            saver = JobSaver(run)
            graph = builder.compile(checkpointer=saver)
            state = await graph.ainvoke(await saver.input({"topic": topic}), saver.config, durability="sync")

    The state is fenced like the rest of the checkpoint: a worker that has lost the job is refused with
    `JobLost`, when reading and when writing. It is renewed with the checkpoint, passed to the worker that
    takes over, and deleted when the job has ended. Only the newest state of each namespace is kept.

    When Redis is down, the graph continues in memory, as the job's steps do, and logs it. A worker that takes
    over then starts from an older state, or from the graph's start. So a node that must not be repeated does
    its work in `run.step` or `run.transact`, which SQL records.

    `types` are the classes that a state may hold besides plain values.
    """

    def __init__(self, run: Run, *, types: Iterable[type] = ()) -> None:
        super().__init__(JobThreadStorage(run), history=1, types=types)
        self.config: RunnableConfig = {"configurable": {"thread_id": run.id}}
        """The configuration to invoke the graph with."""

    async def input(self, first: T) -> T | None:
        """The input to invoke the graph with: `first`, or None to continue from its checkpoint."""
        return first if await self.aget_tuple(self.config) is None else None


class GraphCheckpoints:
    """The threads of graphs: `store[THREADS]` is the checkpointer for `compile`.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of a thread; its one field is `{thread_id}`.
        lifetime: How long a thread is kept after its last change.
        history: How many checkpoints of each namespace are kept; all by default.
        types: Classes that the state may contain, besides plain values and messages: enums, dataclasses,
            named tuples, msgspec.Structs and pydantic models.
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
        types: Iterable[type] = (),
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
        self._types = tuple(types)
        StrictSerializer(self._types)  # refuses a type that it cannot build
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
        return self._saver(AsyncAccess(store))

    def bind_sync(self, store: BlockingStore) -> GraphSaver:
        """The checkpointer of a synchronous store, for any thread or event loop, and after a fork."""
        return self._saver(BlockingAccess(store))

    def _saver(self, access: StoreAccess) -> GraphSaver:
        threads = HashThreadStorage(self.keyspace, self.runs, access)
        return GraphSaver(threads, history=self._history, types=self._types, wait=access.wait)

    def __repr__(self) -> str:
        return f"<GraphCheckpoints {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"
