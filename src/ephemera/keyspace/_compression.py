"""zstd, when the extra `zstd` is installed: a thread has its own contexts, since they cannot be shared.

Without the extra, what another process compressed is unreadable here, which a codec reports as a miss.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec

AVAILABLE = find_spec("zstandard") is not None
_MAGIC = b"\x28\xb5\x2f\xfd"  # how every zstd frame starts; no JSON or MessagePack array does

_LARGEST = 64 * 1024 * 1024  # bytes; a frame of a few bytes may claim any size, and would be given the memory


class _Contexts(threading.local):
    def __init__(self) -> None:
        import zstandard

        self.compress = zstandard.ZstdCompressor().compress
        self.decompress = zstandard.ZstdDecompressor().decompress
        self.size = zstandard.frame_content_size
        self.error = zstandard.ZstdError


_contexts = _Contexts() if AVAILABLE else None


def compress(data: bytes) -> bytes:
    """The data under zstd, or as it is when that would not be smaller, or not be decompressed again."""
    if _contexts is None or len(data) > _LARGEST:
        return data
    smaller = _contexts.compress(data)
    return smaller if len(smaller) < len(data) else data


def decompress(data: bytes) -> bytes:
    """What was compressed; ValueError when that cannot be told, or claims to be enormous."""
    if _contexts is None or not data.startswith(_MAGIC):
        raise ValueError("not compressed, or nothing to decompress it with")
    try:
        if not 0 < _contexts.size(data) <= _LARGEST:
            raise ValueError("it does not say its size, or is too large")
        return _contexts.decompress(data)
    except _contexts.error as problem:
        raise ValueError(str(problem)) from None
