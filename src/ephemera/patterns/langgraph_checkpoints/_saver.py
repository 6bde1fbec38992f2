"""LangGraph's checkpointer on a thread's hash; what it promises, and when Redis is down: see the package."""

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
from ephemera.patterns.langgraph_checkpoints._fields import Place
from ephemera.patterns.langgraph_checkpoints._threads import (
    DELETE,
    FORGET,
    GET,
    LIST,
    PRUNE,
    PUT,
    WRITE,
    Threads,
)
from ephemera.patterns.langgraph_checkpoints._tuples import config_of, restored, saved, saved_writes

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

T = TypeVar("T")

_PAGE = 20  # checkpoints that `alist` reads in a trip
_log = logging.getLogger("ephemera.langgraph")


class GraphSaver(BaseCheckpointSaver[str]):
    """A checkpointer: give it to `compile`. `wait` runs a coroutine for those who call it without await."""

    def __init__(
        self,
        threads: Threads,
        *,
        history: int = 0,
        serde: SerializerProtocol | None = None,
        wait: Callable[[Coroutine[Any, Any, Any]], Any] | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if getattr(self.serde, "pickle_fallback", False):
            raise InvalidValue("serde", "no pickles: they run whatever they hold", "one with pickle_fallback")
        self._threads = threads
        self._history = history
        self._wait = wait or _refuse

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint, or the newest of its namespace when none is named."""
        place = Place(config["configurable"].get("checkpoint_ns", ""), get_checkpoint_id(config) or "")
        for found in await self._read(_thread_of(config), [place]):
            return found
        return None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph calls it so
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """A thread's checkpoints, the newest first; without `checkpoint_ns`, those of all namespaces."""
        thread_id = _thread_of(config)
        places = await self._places(thread_id, config or {}, before)
        left = len(places) if limit is None else limit
        while places and left > 0:
            page, places = places[:_PAGE], places[_PAGE:]
            for found in await self._read(thread_id, page if filter else page[:left]):
                if left > 0 and all(
                    found.metadata.get(key) == value for key, value in (filter or {}).items()
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
        """Store a checkpoint with the values that are new in it; the configuration that names it."""
        thread_id = _thread_of(config)
        put = saved(self.serde, config, checkpoint, metadata, new_versions)
        if put.run:
            await self._threads.note(thread_id, put.run)
        reply = await self._threads.run(thread_id, PUT, *put.arguments(self._history))
        if reply == b"incomplete":  # what it builds on has expired, or was lost with Redis
            reply = await self._threads.run(thread_id, PUT, *put.whole(self.serde).arguments(self._history))
        if reply == b"gone":
            raise CheckpointLost(thread_id, put.parent)
        self._threads.stats.writes += 1
        return config_of(thread_id, put.place)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, until the next checkpoint has it."""
        place = Place(
            config["configurable"].get("checkpoint_ns", ""), config["configurable"]["checkpoint_id"]
        )
        arguments = saved_writes(self.serde, place, writes, task_id, task_path)
        await self._threads.run(_thread_of(config), WRITE, *arguments)
        self._threads.stats.writes += 1

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread; a graph that still runs in it cannot bring it back."""
        await self._threads.run(str(thread_id), DELETE)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs in all threads."""
        for thread_id in await self._threads.of_runs(run_ids) if run_ids else ():
            await self._threads.run(thread_id, FORGET, *run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Fill a thread that is empty with all checkpoints and writes of another."""
        await self._threads.copy(str(source_thread_id), str(target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace, with what it needs, or (`delete`) none."""
        scripts = {"keep_latest": PRUNE, "delete": DELETE}
        if strategy not in scripts:
            raise InvalidValue("strategy", " or ".join(scripts), repr(strategy))
        for thread_id in thread_ids:
            await self._threads.run(str(thread_id), scripts[strategy])

    def get_next_version(self, current: str | int | None, channel: None) -> str:  # noqa: ARG002 - LangGraph gives it
        """A version after this one that no other branch of the thread has, since values are kept by it."""
        number = int(str(current or 0).partition(".")[0]) + 1
        return f"{number:032}.{random.getrandbits(64):016x}"

    # Without await: the same, for `graph.invoke`.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `aget_tuple`."""
        return self._waited(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """As `alist`, all read before the first is given."""
        return iter(self._waited(_all(self.alist(config, filter=filter, before=before, limit=limit))))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `aput`."""
        return self._waited(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `aput_writes`."""
        self._waited(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """As `adelete_thread`."""
        self._waited(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `adelete_for_runs`."""
        self._waited(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `acopy_thread`."""
        self._waited(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `aprune`."""
        self._waited(self.aprune(thread_ids, strategy=strategy))

    def _waited(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self._wait(work)
        return result

    async def _read(self, thread_id: str, places: Sequence[Place]) -> Collection[CheckpointTuple]:
        """Those of these checkpoints that are there and can be read."""
        reply = await self._threads.run(thread_id, GET, *(place.written for place in places))
        stats, read = self._threads.stats, []
        for found in reply or ():
            try:
                read.append(restored(self.serde, thread_id, found))
            except Exception as problem:  # the serializer's, of whatever kind
                stats.undecodable += 1
                _log.warning("a checkpoint of the thread %s cannot be read: %r", thread_id, problem)
        stats.hits += len(read)
        stats.misses += len(places) - len(read)
        return read

    async def _places(
        self, thread_id: str, config: RunnableConfig, before: RunnableConfig | None
    ) -> Sequence[Place]:
        """The checkpoints to list, the newest first."""
        asked = config["configurable"]
        namespace, only = asked.get("checkpoint_ns"), asked.get("checkpoint_id")
        listed = await self._threads.run(thread_id, LIST) or ()
        numbers = {Place.read(place): number for place, number in listed}
        earlier = get_checkpoint_id(before) if before else None
        limit = next((numbers[place] for place in numbers if place.id == earlier), None)

        def is_asked_for(place: Place) -> bool:
            return (
                namespace in (None, place.namespace)
                and only in (None, "", place.id)
                and (earlier is None or (place.id < earlier if limit is None else numbers[place] < limit))
            )

        return sorted(filter(is_asked_for, numbers), key=numbers.__getitem__, reverse=True)


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
        "this checkpointer is for `await graph.ainvoke(...)`; for `graph.invoke(...)` give compile() one "
        "of a blocking store: GraphCheckpoints.blocking(store)"
    )
