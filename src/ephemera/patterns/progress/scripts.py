"""How a script adds to a progress stream: `lua/progress_entry.lua` before it, and what that takes."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

from ephemera.wire import Script


class EntryArguments(NamedTuple):
    """What `append_entry` takes after the stream's key."""

    payload: bytes
    max_entries: int
    lifetime: int  # milliseconds
    channel: str
    message: str


def appending(name: str) -> Script:
    """The script `lua/<name>.lua` with `lua/progress_entry.lua` before it, which defines `append_entry`."""
    folder = resources.files("ephemera.patterns").joinpath("lua")
    parts = [folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in ("progress_entry", name)]
    return Script(name, "\n".join(parts))


APPEND = appending("progress_append")
