"""Can what a key holds be read as its space declares? Given the server's reply, and counted nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ephemera.keyspace import DECODE_ERRORS, Codec, Keyspace, RecordCodec
from ephemera.operations.inspect._probe import Look, Probe


def decodable_as(space: Keyspace[Any]) -> Look:
    """What tells whether a content is of the declared type and shape; None when a part cannot tell."""

    def look(probe: Probe, content: Any) -> bool | None:
        return _readable(space, content) if probe.type == space.redis_type else None

    return look


def _readable(space: Keyspace[Any], content: Any) -> bool | None:
    match space.kind:
        case "flag":
            return True
        case "counter":
            return _is_whole_number(content)
        case "hash":
            record = cast("RecordCodec[Any]", space.codec)
            # A few fields out of many are no record: a hash that is too large to read is not judged.
            return record.decode(content) is not None if isinstance(content, dict) else None
        case "stream":
            record = cast("RecordCodec[Any]", space.codec)
            entries = (dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in content if flat)
            return all(record.decode(entry) is not None for entry in entries)
        case "mapping":
            pairs = content.items() if isinstance(content, dict) else content
            return _all_decode(space, (value for _, value in pairs))
        case "value":
            return _all_decode(space, [content])
        case _:
            return _all_decode(space, content)


def _all_decode(space: Keyspace[Any], values: Iterable[bytes]) -> bool:
    decode = cast("Codec[Any]", space.codec).decode
    return all(decode(value) is not None for value in values)


def _is_whole_number(content: bytes) -> bool:
    try:
        int(content)
    except DECODE_ERRORS:
        return False
    return True
