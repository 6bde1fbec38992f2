"""zstd compression, when the extra `zstd` is installed. Each thread has its own contexts.

Without the extra, data that another process compressed cannot be decoded, which a codec reports as a miss.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec

AVAILABLE = find_spec("zstandard") is not None
_MAGIC = b"\x28\xb5\x2f\xfd"  # the first bytes of a zstd frame; no JSON or MessagePack array starts like this

_LARGEST = 64 * 1024 * 1024  # bytes; a tiny frame may claim any size, and memory would be allocated for it


class _Contexts(threading.local):
    def __init__(self) -> None:
        import zstandard

        self.compress = zstandard.ZstdCompressor().compress
        self.decompress = zstandard.ZstdDecompressor().decompress
        self.size = zstandard.frame_content_size
        self.error = zstandard.ZstdError


_contexts = _Contexts() if AVAILABLE else None


def compress(data: bytes) -> bytes:
    """Compress data; unchanged when that would not be smaller, or too large to be decompressed again."""
    if _contexts is None or len(data) > _LARGEST:
        return data
    smaller = _contexts.compress(data)
    return smaller if len(smaller) < len(data) else data


def decompress(data: bytes) -> bytes:
    """Decompress data; ValueError when it is not compressed, or claims to be larger than the limit."""
    if _contexts is None or not data.startswith(_MAGIC):
        raise ValueError("not compressed, or zstandard is not installed")
    try:
        if not 0 < _contexts.size(data) <= _LARGEST:
            raise ValueError("its size is unknown or too large")
        return _contexts.decompress(data)
    except _contexts.error as problem:
        raise ValueError(str(problem)) from None
