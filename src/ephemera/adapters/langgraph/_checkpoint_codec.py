"""How checkpoints are encoded in a thread's hash; `lua/thread.lua` names the fields.

Values are encoded by the saver's serializer (`_serializer.py`). Above 4 KiB they are compressed by zstd, if
the extra `zstd` is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ephemera.keyspace import FieldCodec, compress, decompress
from ephemera.wire import Arg

Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,64}(\.|$)", max_length=256)] | int | float
"""The version of a channel; `get_next_version` counts the digits up."""

_FIELD = FieldCodec()
_COMPRESS_OVER = 4096  # bytes


class CheckpointKey(NamedTuple):
    """Identifies a checkpoint in its thread."""

    namespace: str
    id: str

    @property
    def text(self) -> str:
        """Its form in scripts: `<namespace>:<id>`, without an id for the newest."""
        return f"{encode_part(self.namespace)}:{encode_part(self.id) if self.id else ''}"

    @classmethod
    def parse(cls, text: bytes) -> CheckpointKey:
        """The key that a script has returned."""
        namespace, _, checkpoint_id = text.decode(errors="replace").partition(":")
        return cls(_FIELD.decode(namespace) or "", _FIELD.decode(checkpoint_id) or "")

    def value(self, channel: str, version: object) -> str:
        """The field of a channel's value."""
        return (
            f"_graph:value:{encode_part(self.namespace)}:{encode_part(channel)}:{encode_part(str(version))}"
        )

    @property
    def writes(self) -> str:
        """The field that lists pending writes."""
        return f"_graph:writes:{self.text}"

    def write(self, task_id: str, index: int) -> str:
        """The field of one pending write."""
        return f"_graph:write:{self.text}:{encode_part(task_id)}:{index}"


class CheckpointRecord(msgspec.Struct, array_like=True, frozen=True):
    """The part of a checkpoint that scripts read, by position; Lua's MessagePack takes text, but no bytes."""

    parent: str
    run: str
    ancestors: int
    """How many ancestors it needs: `DeltaChannel` adds up their writes."""
    values: list[str]
    number: int = 0
    """The number of its put, assigned by the script."""


class CheckpointBody(msgspec.Struct, array_like=True, frozen=True):
    """The rest of a checkpoint."""

    channels: list[str]
    """The channels of its values."""
    checkpoint: bytes
    metadata: bytes


class PendingWrite(msgspec.Struct, array_like=True, frozen=True):
    """One write of a task; a super-step applies them in this order."""

    task_path: str
    task_id: str
    index: int
    channel: str
    value: bytes


class CheckpointHead(msgspec.Struct, frozen=True):
    """What LangGraph reads of a checkpoint besides its values; anything else would fail inside a graph."""

    v: int
    id: str
    ts: str
    channel_versions: dict[str, Version]
    versions_seen: dict[str, dict[str, Version]]
    updated_channels: list[str] | None = None


_encode = msgspec.msgpack.encode
_decode_record = msgspec.msgpack.Decoder(CheckpointRecord).decode
_decode_body = msgspec.msgpack.Decoder(CheckpointBody).decode
_decode_write = msgspec.msgpack.Decoder(PendingWrite).decode
_decode_typed = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


def encode_part(part: str) -> str:
    """A part of a field's name, escaped so that it contains no colon."""
    return _FIELD.encode(part)


def dump_value(serde: SerializerProtocol, value: Any) -> bytes:
    """Encode a value."""
    data = _encode(serde.dumps_typed(value))
    return compress(data) if len(data) > _COMPRESS_OVER else data


def load_value(serde: SerializerProtocol, data: bytes) -> Any:
    """Decode a value; ValueError if that fails."""
    # MessagePack's array of two starts with 0x92, and a zstd frame never does.
    return serde.loads_typed(_decode_typed(data if data[:1] == b"\x92" else decompress(data)))


class EncodedCheckpoint(NamedTuple):
    """A checkpoint ready to be stored."""

    key: CheckpointKey
    run: str
    parent: str
    record: bytes
    body: bytes
    new: dict[str, bytes]
    """The fields of values that are new in it."""
    old: dict[str, Any]
    """The values that an earlier checkpoint has stored, not encoded."""

    def arguments(self, history: int) -> list[Arg]:
        """The arguments of `put.lua` after the first three."""
        flat = [part for field in self.new.items() for part in field]
        names = (encode_part(self.key.namespace), encode_part(self.key.id), self.parent)
        return [*names, self.record, self.body, history, len(self.new), *flat, *self.old]

    def with_all_values(self, serde: SerializerProtocol) -> EncodedCheckpoint:
        """The same with all values, for a thread that has lost them."""
        values = {field: dump_value(serde, value) for field, value in self.old.items()}
        return self._replace(new={**self.new, **values}, old={})


def encode_checkpoint(
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> EncodedCheckpoint:
    """Encode a checkpoint; values without a version are left out, as in LangGraph's own savers."""
    configurable = config["configurable"]
    key = CheckpointKey(configurable.get("checkpoint_ns", ""), checkpoint["id"])
    parent = configurable.get("checkpoint_id")
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    channels = [channel for channel in values if channel in versions]
    fields = {channel: key.value(channel, versions[channel]) for channel in channels}
    stored_metadata = get_checkpoint_metadata(config, metadata)
    since = stored_metadata.get("counters_since_delta_snapshot") or {}
    record = CheckpointRecord(
        parent=encode_part(parent) if parent else "",
        run=str(stored_metadata.get("run_id", "")),
        ancestors=max((supersteps for _, supersteps in since.values()), default=0),
        values=list(fields.values()),
    )
    rest = {name: part for name, part in checkpoint.items() if name != "channel_values"}
    body = CheckpointBody(channels, dump_value(serde, rest), dump_value(serde, stored_metadata))
    return EncodedCheckpoint(
        key,
        record.run,
        record.parent,
        _encode(record),
        _encode(body),
        {fields[name]: dump_value(serde, values[name]) for name in channels if name in new_versions},
        {fields[name]: values[name] for name in channels if name not in new_versions},
    )


def encode_writes(
    serde: SerializerProtocol,
    key: CheckpointKey,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> list[Arg]:
    """The arguments of `write.lua` after the first three; errors and interrupts replace earlier ones."""
    arguments: list[Arg] = [key.writes]
    for number, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, number)
        write = PendingWrite(task_path, task_id, index, channel, dump_value(serde, value))
        arguments += [key.write(task_id, index), _encode(write), int(index < 0)]
    return arguments


def decode_checkpoint(serde: SerializerProtocol, thread_id: str, found: Sequence[Any]) -> CheckpointTuple:
    """Decode the reply of `get.lua` for one checkpoint; raises an exception of any type if that fails."""
    key, record, body = CheckpointKey.parse(found[0]), _decode_record(found[1]), _decode_body(found[2])
    values = zip(body.channels, found[3], strict=True)
    writes = sorted(
        map(_decode_write, found[4]), key=lambda write: (write.task_path, write.task_id, write.index)
    )
    head, metadata = load_value(serde, body.checkpoint), load_value(serde, body.metadata)
    msgspec.convert(head, CheckpointHead)
    msgspec.convert(metadata, dict[str, Any])
    parent = CheckpointKey.parse(f"{key.text.partition(':')[0]}:{record.parent}".encode())
    return CheckpointTuple(
        config=checkpoint_config(thread_id, key),
        checkpoint=head | {"channel_values": {channel: load_value(serde, data) for channel, data in values}},
        metadata=metadata,
        parent_config=checkpoint_config(thread_id, parent) if record.parent else None,
        pending_writes=[(write.task_id, write.channel, load_value(serde, write.value)) for write in writes],
    )


def checkpoint_config(thread_id: str, key: CheckpointKey) -> RunnableConfig:
    """The configuration of a checkpoint."""
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": key.namespace,
            "checkpoint_id": key.id,
        }
    }
