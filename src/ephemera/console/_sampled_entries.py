"""Sampled keys with their decoded contents; nothing of sensitive keyspaces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from ephemera.console._formats import HIDDEN, format_value
from ephemera.keyspace import DECODE_ERRORS, Codec, Keyspace, RecordCodec
from ephemera.operations.formatting import format_key
from ephemera.operations.survey import ContentReader, KeyspaceSample, SampledKey

MAX_ENTRIES = 20
"""Keys per keyspace that are kept with their contents."""
UNDECODABLE = "(does not decode as declared)"
"""Shown instead of a value that the keyspace's codec rejects."""
_TOO_LARGE = "(too large to read)"
_OTHER_TYPE = "(another type than declared)"


@dataclass(frozen=True, slots=True)
class SampledEntry:
    """One sampled key, as text that may be shown."""

    key: str
    value: str
    ttl: int
    """Milliseconds; -1: no TTL."""
    size: int | None
    members: int


def content_reader(keyspace: Keyspace[Any]) -> ContentReader | None:
    """A reader that returns contents as text; None for a sensitive keyspace, whose contents are not read."""
    if keyspace.sensitive:
        return None

    def read(key: SampledKey, content: Any) -> str:
        if key.type != keyspace.redis_type:
            return _OTHER_TYPE
        try:
            value = _decoded(keyspace, content)
        except DECODE_ERRORS:
            return UNDECODABLE
        return UNDECODABLE if value is None else format_value(value)

    return read


def sampled_entries(sample: KeyspaceSample, keyspace: Keyspace[Any]) -> list[SampledEntry]:
    """Some keys of a sample, as they may be shown."""
    return [
        SampledEntry(format_key(key.key, keyspace), _value(key, keyspace), key.ttl, key.size, key.members)
        for key in sample.keys[:MAX_ENTRIES]
    ]


def _value(key: SampledKey, keyspace: Keyspace[Any]) -> str:
    if keyspace.sensitive:
        return HIDDEN
    if key.too_large:
        return _TOO_LARGE
    return key.content if isinstance(key.content, str) else "—"


def _decoded(keyspace: Keyspace[Any], content: Any) -> Any:
    match keyspace.kind:
        case "flag":
            return "set"
        case "counter":
            return int(content)
        case "hash":
            record = cast("RecordCodec[Any]", keyspace.codec)
            return record.decode(content if isinstance(content, dict) else dict(content))
        case "stream":
            record = cast("RecordCodec[Any]", keyspace.codec)
            return [
                {"id": entry_id, "entry": record.decode(dict(zip(flat[::2], flat[1::2], strict=True)))}
                for entry_id, flat in content
                if flat
            ]
        case "mapping":
            pairs = content.items() if isinstance(content, dict) else content
            decode = cast("Codec[Any]", keyspace.codec).decode
            return {_text(name): decode(value) for name, value in pairs}
        case "value":
            return cast("Codec[Any]", keyspace.codec).decode(content)
        case _:
            return _members(keyspace, content)


def _members(keyspace: Keyspace[Any], content: Iterable[bytes]) -> list[Any]:
    decode = cast("Codec[Any]", keyspace.codec).decode
    return [decode(value) for value in content]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
