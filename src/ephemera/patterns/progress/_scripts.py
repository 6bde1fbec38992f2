"""How a script adds to a progress stream: `lua/entry.lua` before it, and what that takes."""

from __future__ import annotations

from typing import NamedTuple

from ephemera.wire import Script


class EntryArguments(NamedTuple):
    """What `append_entry` takes after the stream's key."""

    payload: bytes
    max_entries: int
    lifetime: int  # milliseconds
    channel: str
    message: str


def appending(package: str, name: str) -> Script:
    """The script `lua/<name>.lua` of a package, after `lua/entry.lua`, which defines `append_entry`."""
    return Script.load(package, name, shared=("ephemera.patterns.progress:entry",))


APPEND = appending("ephemera.patterns.progress", "append")
