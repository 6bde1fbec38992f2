"""LangGraph's checkpointer; the package says what it guarantees, and what happens when Redis is down."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ephemera.errors import CheckpointLost, InvalidValue, SyncCallInEventLoop
from ephemera.patterns.langgraph_checkpoints._checkpoint_codec import (
    CheckpointKey,
    checkpoint_config,
    decode_checkpoint,
    encode_checkpoint,
    encode_writes,
)
from ephemera.patterns.langgraph_checkpoints._thread_storage import (
    DELETE,
    DELETE_RUNS,
    GET,
    LIST,
    PRUNE,
    PUT,
    WRITE,
    ThreadStorage,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

T = TypeVar("T")

_PAGE = 20  # checkpoints that `alist` reads in a round trip
_log = logging.getLogger("ephemera.langgraph")


class GraphSaver(BaseCheckpointSaver[str]):
    """A checkpointer: pass it to `compile`. `wait` runs a coroutine for the synchronous methods."""

    def __init__(
        self,
        threads: ThreadStorage,
        *,
        history: int = 0,
        serde: SerializerProtocol | None = None,
        wait: Callable[[Coroutine[Any, Any, Any]], Any] | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if getattr(self.serde, "pickle_fallback", False):
            raise InvalidValue("serde", "no pickles: they can run any code", "one with pickle_fallback")
        self._threads = threads
        self._history = history
        self._run_sync = wait or _refuse

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
        """A thread's checkpoints, the newest first; without `checkpoint_ns`, those of all namespaces."""
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
        """Keep the newest checkpoint of each namespace and its ancestors, or (`delete`) none."""
        scripts = {"keep_latest": PRUNE, "delete": DELETE}
        if strategy not in scripts:
            raise InvalidValue("strategy", " or ".join(scripts), repr(strategy))
        for thread_id in thread_ids:
            await self._threads.run(str(thread_id), scripts[strategy])

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """A version after this one, unique among the branches of a thread, since values are stored by it."""
        number = int(str(current or 0).partition(".")[0]) + 1
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
        """Synchronous `alist`; all checkpoints are read before the first is returned."""
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
        """Synchronous `aprune`."""
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


def _refuse(work: Coroutine[Any, Any, Any]) -> NoReturn:
    work.close()
    raise SyncCallInEventLoop(
        "this checkpointer is for `await graph.ainvoke(...)`; for `graph.invoke(...)` pass compile() the one "
        "of a synchronous store: GraphCheckpoints.sync_saver(store)"
    )
