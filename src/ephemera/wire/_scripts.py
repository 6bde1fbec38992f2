"""Lua scripts by name: one file a script, sent once, then named by its digest.

A script is `lua/<name>.lua` in a package and opens with a comment that names its KEYS, ARGV and RETURNS.
It is called by digest (EVALSHA). A server that does not know it, because it restarted or is a new master,
answers NOSCRIPT; the wire then sends the source in the same caller's place, so callers never see it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources

_sources: dict[str, str] = {}


class Script:
    """One Lua script: its name, source and digest."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        _sources[self.sha] = source

    @classmethod
    def load(cls, package: str, name: str, *, shared: Sequence[str] = ()) -> Script:
        """The script in a package's `lua/<name>.lua`: `Script.load("ephemera.patterns.locks", "acquire")`.

        `shared` names files of Lua functions, as `package:name`, that precede it.
        """
        pieces = [*(each.split(":") for each in shared), (package, name)]
        source = "\n".join(_read(where, what) for where, what in pieces)
        return cls(f"{package.rpartition('.')[2]}_{name}", source)

    def __repr__(self) -> str:
        return f"Script({self.name!r}, sha={self.sha[:8]})"


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def source_of(sha: str) -> str | None:
    """The source behind a digest, for the wire's recovery from NOSCRIPT."""
    return _sources.get(sha)
