"""What a sampled key holds, decoded as its space declares; of sensitive spaces nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from ephemera.console._formatting import HIDDEN, shown_value
from ephemera.keyspace import DECODE_ERRORS, Codec, Keyspace, RecordCodec
from ephemera.operations.formatting import format_key
from ephemera.operations.survey import ContentReader, KeyspaceSample, SampledKey

ENTRIES = 20
"""Keys of a space that are kept with what they hold."""
UNREADABLE = "(not readable as declared)"
"""What stands for a value that the space's codec refuses."""
_TOO_LARGE = "(too large to look into)"
_OTHER_TYPE = "(of another type than declared)"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a sample; texts, as they may be shown."""

    key: str
    value: str
    ttl: int
    """Milliseconds; -1: no end."""
    size: int | None
    members: int


def decoded_as(space: Keyspace[Any]) -> ContentReader | None:
    """What makes a text of a content; None, so that it is not even read, for a sensitive space."""
    if space.sensitive:
        return None

    def look(probe: SampledKey, content: Any) -> str:
        if probe.type != space.redis_type:
            return _OTHER_TYPE
        try:
            value = _decoded(space, content)
        except DECODE_ERRORS:
            return UNREADABLE
        return UNREADABLE if value is None else shown_value(value)

    return look


def entries_of(tally: KeyspaceSample, space: Keyspace[Any]) -> list[Entry]:
    """Some sampled keys, as they may be shown."""
    return [
        Entry(format_key(probe.key, space), _value(probe, space), probe.ttl, probe.size, probe.members)
        for probe in tally.keys[:ENTRIES]
    ]


def _value(probe: SampledKey, space: Keyspace[Any]) -> str:
    if space.sensitive:
        return HIDDEN
    if probe.too_large:
        return _TOO_LARGE
    return probe.content if isinstance(probe.content, str) else "—"


def _decoded(space: Keyspace[Any], content: Any) -> Any:
    match space.kind:
        case "flag":
            return "set"
        case "counter":
            return int(content)
        case "hash":
            record = cast("RecordCodec[Any]", space.codec)
            return record.decode(content if isinstance(content, dict) else dict(content))
        case "stream":
            record = cast("RecordCodec[Any]", space.codec)
            return [
                {"id": entry_id, "entry": record.decode(dict(zip(flat[::2], flat[1::2], strict=True)))}
                for entry_id, flat in content
                if flat
            ]
        case "mapping":
            pairs = content.items() if isinstance(content, dict) else content
            decode = cast("Codec[Any]", space.codec).decode
            return {_text(name): decode(value) for name, value in pairs}
        case "value":
            return cast("Codec[Any]", space.codec).decode(content)
        case _:
            return _members(space, content)


def _members(space: Keyspace[Any], content: Iterable[bytes]) -> list[Any]:
    decode = cast("Codec[Any]", space.codec).decode
    return [decode(value) for value in content]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
