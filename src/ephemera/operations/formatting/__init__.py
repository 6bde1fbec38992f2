"""Keys, counts, sizes and durations as people read them; a key that may be a secret is never shown.

Each key is judged by itself. Of a declared keyspace, keys are hidden if it is sensitive, or if a field's
value looks like a secret: a pattern as wide as `:1:{id}` holds Django's sessions beside harmless pages.
Undeclared keys are also hidden if they contain an address of email or a random id, which may be a bearer's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ephemera.keyspace import Keyspace
from ephemera.operations.survey import form_of, looks_random, looks_secret

__all__ = [
    "MAX_EXAMPLES",
    "format_count",
    "format_duration",
    "format_key",
    "format_keys",
    "format_latency",
    "format_size",
]

MAX_EXAMPLES = 3
"""Keys that are shown as examples."""

_MAX_KEY_LENGTH = 100  # characters
_SHORTEST_ID = 10  # characters of an id in a key that is not shown


def format_key(key: bytes, keyspace: Keyspace[Any] | None = None) -> str:
    """A readable, shortened key; the pattern, or nothing if undeclared, of a key that may be a secret."""
    text = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in key.decode("utf-8", "backslashreplace")
    )
    if _is_hidden(key, text, keyspace):
        return "" if keyspace is None else keyspace.pattern
    return text if len(text) <= _MAX_KEY_LENGTH else f"{text[: _MAX_KEY_LENGTH - 1]}…"


def format_keys(keys: Iterable[bytes], keyspace: Keyspace[Any] | None = None) -> list[str]:
    """A few different keys as examples, without those that may be secrets."""
    shown = dict.fromkeys(format_key(key, keyspace) for key in keys)
    return [key for key in shown if key][:MAX_EXAMPLES]


def _is_hidden(key: bytes, text: str, keyspace: Keyspace[Any] | None) -> bool:
    if keyspace is None:
        parts = text.split(":")
        is_personal = "email" in map(form_of, parts)
        return is_personal or looks_secret(text, *parts) or looks_random(text, shortest=_SHORTEST_ID)
    if keyspace.sensitive:
        return True
    fields = keyspace.parse(key)
    return looks_secret(*map(str, fields.values())) if fields else looks_secret(text)


def format_duration(milliseconds: float) -> str:
    """A rounded duration in its natural unit: '3 d', '2 h', '5 min', '40 s'."""
    seconds = milliseconds / 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.9 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_latency(seconds: float) -> str:
    """A duration to the digit that matters: '12 ms', '3.4 s', '5 min'."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else format_duration(1000 * seconds)


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
