"""Checkpoints as LangGraph has them, and as they are stored: the conversion both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ephemera.patterns.langgraph_checkpoints._fields import (
    Body,
    Place,
    Record,
    Write,
    dumped,
    encode,
    loaded,
    read_body,
    read_record,
    read_write,
    written,
)
from ephemera.wire import Arg

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


class Saved(NamedTuple):
    """A checkpoint to be stored."""

    place: Place
    run: str
    parent: str
    record: bytes
    body: bytes
    new: dict[str, bytes]
    """The fields of values that are new in it."""
    old: dict[str, Any]
    """Those that an earlier checkpoint has stored, not written yet."""

    def arguments(self, history: int) -> list[Arg]:
        """What `langgraph_put.lua` takes after the first three."""
        flat = [part for field in self.new.items() for part in field]
        names = (written(self.place.namespace), written(self.place.id), self.parent)
        return [*names, self.record, self.body, history, len(self.new), *flat, *self.old]

    def whole(self, serde: SerializerProtocol) -> Saved:
        """The same with all values, for a thread that lost them."""
        values = {field: dumped(serde, value) for field, value in self.old.items()}
        return self._replace(new={**self.new, **values}, old={})


def saved(
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Saved:
    """A checkpoint as it is stored; values that have no version are not, as in LangGraph's own savers."""
    configurable = config["configurable"]
    place = Place(configurable.get("checkpoint_ns", ""), checkpoint["id"])
    parent = configurable.get("checkpoint_id")
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    channels = [channel for channel in values if channel in versions]
    fields = {channel: place.value(channel, versions[channel]) for channel in channels}
    about = get_checkpoint_metadata(config, metadata)
    since = about.get("counters_since_delta_snapshot") or {}
    record = Record(
        parent=written(parent) if parent else "",
        run=str(about.get("run_id", "")),
        ancestors=max((supersteps for _, supersteps in since.values()), default=0),
        values=list(fields.values()),
    )
    rest = {name: part for name, part in checkpoint.items() if name != "channel_values"}
    body = Body(channels, dumped(serde, rest), dumped(serde, about))
    return Saved(
        place,
        record.run,
        record.parent,
        encode(record),
        encode(body),
        {fields[name]: dumped(serde, values[name]) for name in channels if name in new_versions},
        {fields[name]: values[name] for name in channels if name not in new_versions},
    )


def saved_writes(
    serde: SerializerProtocol, place: Place, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> list[Arg]:
    """What `langgraph_write.lua` takes after the first three; errors and the like replace their like."""
    arguments: list[Arg] = [place.writes]
    for number, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, number)
        write = Write(task_path, task_id, index, channel, dumped(serde, value))
        arguments += [place.write(task_id, index), encode(write), int(index < 0)]
    return arguments


def restored(serde: SerializerProtocol, thread_id: str, found: Sequence[Any]) -> CheckpointTuple:
    """The checkpoint that a script found; ValueError or the like when it cannot be read."""
    place, record, body = Place.read(found[0]), read_record(found[1]), read_body(found[2])
    values = zip(body.channels, found[3], strict=True)
    writes = sorted(
        map(read_write, found[4]), key=lambda write: (write.task_path, write.task_id, write.index)
    )
    parent = Place.read(f"{place.written.partition(':')[0]}:{record.parent}".encode())
    return CheckpointTuple(
        config=config_of(thread_id, place),
        checkpoint=loaded(serde, body.checkpoint)
        | {"channel_values": {channel: loaded(serde, data) for channel, data in values}},
        metadata=loaded(serde, body.metadata),
        parent_config=config_of(thread_id, parent) if record.parent else None,
        pending_writes=[(write.task_id, write.channel, loaded(serde, write.value)) for write in writes],
    )


def config_of(thread_id: str, place: Place) -> RunnableConfig:
    """The configuration that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": place.namespace,
            "checkpoint_id": place.id,
        }
    }
