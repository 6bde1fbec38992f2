"""How keys are shown to people: readable, short, and never those of sensitive spaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ephemera.keyspace import Keyspace

_LONGEST = 100
EXAMPLES = 3
"""Keys that are shown of each thing."""


def shown_key(key: bytes, space: Keyspace[Any] | None = None) -> str:
    """A key as a person reads it; of a sensitive space only the pattern, because ids may be secrets, too."""
    if space is not None and space.sensitive:
        return space.pattern
    text = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in key.decode("utf-8", "backslashreplace")
    )
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def shown_keys(keys: Iterable[bytes], space: Keyspace[Any] | None = None) -> list[str]:
    """A few different keys."""
    return list(dict.fromkeys(shown_key(key, space) for key in keys))[:EXAMPLES]


def shown_life(milliseconds: float) -> str:
    """About how long something lives, in the unit that people would use."""
    seconds = milliseconds / 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.9 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(count: int, thing: str) -> str:
    """So many things: '1 key', '1,200 keys'."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def shown_size(size: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
