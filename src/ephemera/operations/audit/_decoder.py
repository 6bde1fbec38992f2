"""Whether a key's contents decode as its keyspace declares, judged from the server's reply; not counted."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, cast

from ephemera.keyspace import DECODE_ERRORS, Codec, Keyspace, RecordCodec
from ephemera.operations.survey import ContentReader, SampledKey


def decodability_reader(keyspace: Keyspace[Any]) -> ContentReader:
    """A reader that returns whether contents decode as declared; None when a partial read cannot show it.

    It also tries how much smaller a value would be compressed.
    """

    def read(key: SampledKey, content: Any) -> bool | None:
        if isinstance(content, bytes):
            key.compression_saves = max(0, len(content) - len(zlib.compress(content, level=1)))
        return _decodes(keyspace, content) if key.type == keyspace.redis_type else None

    return read


def _decodes(keyspace: Keyspace[Any], content: Any) -> bool | None:
    match keyspace.kind:
        case "flag":
            return True
        case "counter":
            return _is_integer(content)
        case "hash":
            record = cast("RecordCodec[Any]", keyspace.codec)
            # A few fields of many are not a record: a hash that is too large to read is not judged.
            return record.decode(content) is not None if isinstance(content, dict) else None
        case "stream":
            record = cast("RecordCodec[Any]", keyspace.codec)
            entries = (dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in content if flat)
            return all(record.decode(entry) is not None for entry in entries)
        case "mapping":
            pairs = content.items() if isinstance(content, dict) else content
            return _all_decode(keyspace, (value for _, value in pairs))
        case "value":
            return _all_decode(keyspace, [content])
        case _:
            return _all_decode(keyspace, content)


def _all_decode(keyspace: Keyspace[Any], values: Iterable[bytes]) -> bool:
    decode = cast("Codec[Any]", keyspace.codec).decode
    return all(decode(value) is not None for value in values)


def _is_integer(content: bytes) -> bool:
    try:
        int(content)
    except DECODE_ERRORS:
        return False
    return True
