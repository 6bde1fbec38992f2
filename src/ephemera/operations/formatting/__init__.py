"""Keys, counts, sizes and durations as people read them; keys of sensitive keyspaces are never shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ephemera.keyspace import Keyspace

__all__ = ["MAX_EXAMPLES", "format_count", "format_duration", "format_key", "format_keys", "format_size"]

MAX_EXAMPLES = 3
"""Keys that are shown as examples."""

_MAX_KEY_LENGTH = 100  # characters


def format_key(key: bytes, keyspace: Keyspace[Any] | None = None) -> str:
    """A readable, shortened key; for a sensitive keyspace its pattern, because ids may be secrets, too."""
    if keyspace is not None and keyspace.sensitive:
        return keyspace.pattern
    text = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in key.decode("utf-8", "backslashreplace")
    )
    return text if len(text) <= _MAX_KEY_LENGTH else f"{text[: _MAX_KEY_LENGTH - 1]}…"


def format_keys(keys: Iterable[bytes], keyspace: Keyspace[Any] | None = None) -> list[str]:
    """A few different keys as examples."""
    return list(dict.fromkeys(format_key(key, keyspace) for key in keys))[:MAX_EXAMPLES]


def format_duration(milliseconds: float) -> str:
    """A rounded duration in its natural unit: '3 d', '2 h', '5 min', '40 s'."""
    seconds = milliseconds / 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.9 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_count(count: int, noun: str) -> str:
    """A number with its noun: '1 key', '1,200 keys'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_size(size: float) -> str:
    """A number of bytes in its natural unit: '12 B', '3.4 MiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
