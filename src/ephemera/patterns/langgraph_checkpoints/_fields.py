"""How a thread's checkpoints are written in its hash; `lua/langgraph_thread.lua` names the fields.

Values are what LangGraph's own serializer makes of them: a type and bytes, never a pickle. Above 4 KiB they
are under zstd, where the extra `zstd` is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ephemera.keyspace import FieldCodec, compress, decompress

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

_FIELD = FieldCodec()
_COMPRESS_OVER = 4096  # bytes


class Place(NamedTuple):
    """Where a checkpoint is in its thread."""

    namespace: str
    id: str

    @property
    def written(self) -> str:
        """As scripts take it."""
        return f"{written(self.namespace)}:{written(self.id) if self.id else ''}"

    @classmethod
    def read(cls, text: bytes) -> Place:
        """The place that a script names."""
        namespace, _, checkpoint_id = text.decode().partition(":")
        return cls(_FIELD.decode(namespace) or "", _FIELD.decode(checkpoint_id) or "")

    def value(self, channel: str, version: object) -> str:
        """The field of a channel's value."""
        return f"_graph:value:{written(self.namespace)}:{written(channel)}:{written(str(version))}"

    @property
    def writes(self) -> str:
        """The field that lists pending writes."""
        return f"_graph:writes:{self.written}"

    def write(self, task_id: str, index: int) -> str:
        """The field of one of them."""
        return f"_graph:write:{self.written}:{written(task_id)}:{index}"


class Record(msgspec.Struct, array_like=True, frozen=True):
    """What scripts know of a checkpoint, by position; Lua's MessagePack takes texts, but no bytes."""

    parent: str
    run: str
    ancestors: int
    """How many must stay with it: `DeltaChannel` adds up what they wrote."""
    values: list[str]
    number: int = 0
    """Of its put, given by the script."""


class Body(msgspec.Struct, array_like=True, frozen=True):
    """The rest of it."""

    channels: list[str]
    """Whose values they are."""
    checkpoint: bytes
    metadata: bytes


class Write(msgspec.Struct, array_like=True, frozen=True):
    """One write of a task; a super-step applies them in this order."""

    task_path: str
    task_id: str
    index: int
    channel: str
    value: bytes


encode = msgspec.msgpack.encode
read_record = msgspec.msgpack.Decoder(Record).decode
read_body = msgspec.msgpack.Decoder(Body).decode
read_write = msgspec.msgpack.Decoder(Write).decode
_read_typed = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


def written(part: str) -> str:
    """A part of a field's name, without colons."""
    return _FIELD.encode(part)


def dumped(serde: SerializerProtocol, value: Any) -> bytes:
    """A value as it is stored."""
    data = encode(serde.dumps_typed(value))
    return compress(data) if len(data) > _COMPRESS_OVER else data


def loaded(serde: SerializerProtocol, data: bytes) -> Any:
    """The value that was stored; ValueError when it cannot be told."""
    # MessagePack's array of two begins with 0x92, and a zstd frame never does.
    return serde.loads_typed(_read_typed(data if data[:1] == b"\x92" else decompress(data)))
