"""Lua scripts: loaded from files, called by digest.

A script is `lua/<name>.lua` in a package and opens with a comment that documents its KEYS, ARGV and RETURNS.
It is called by digest (EVALSHA). A server that does not know it, because it restarted or is a new master,
answers NOSCRIPT; the wire then sends the source on behalf of the same caller, so callers never see that.

A `PreparedScript` is a call with its keys and arguments, packed once: reading a session does not change from
request to request, and packing it again each time would cost more than sending it. A `ScriptPrefix` is what
all calls of a script on the same keys start with; the caller packs the arguments that follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Self

from ephemera.wire._commands import Arg
from ephemera.wire._packed_commands import pack, pack_argument
from ephemera.wire._slots import key_slot

_sources: dict[str, str] = {}


class Script:
    """One Lua script: its name, source and digest.

    A script runs beside fast commands, on their connection, only if `is_fast`: by default one that was loaded
    from a package is, and one that was written in place is not.
    """

    __slots__ = ("is_fast", "name", "sha", "source")

    def __init__(self, name: str, source: str, *, is_fast: bool = False) -> None:
        self.name = name
        self.is_fast = is_fast
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        _sources[self.sha] = source

    @classmethod
    def load(cls, package: str, name: str, *, shared: Sequence[str] = (), is_fast: bool = True) -> Script:
        """The script in a package's `lua/<name>.lua`: `Script.load("ephemera.patterns.locks", "acquire")`.

        Args:
            package: The package that has the folder `lua`.
            name: The name of the file, without its ending.
            shared: Files of Lua functions that precede it, as `package:name`.
            is_fast: False for a script that may take long: it then runs on the second lane.

        """
        pieces = [*(each.split(":") for each in shared), (package, name)]
        source = "\n".join(_read(where, what) for where, what in pieces)
        return cls(f"{package.rpartition('.')[2]}_{name}", source, is_fast=is_fast)

    def __repr__(self) -> str:
        return f"Script({self.name!r}, sha={self.sha[:8]})"


class PreparedScript(bytes):
    """A script call packed with its keys and arguments, to be sent any number of times by `client.send`."""

    script: Script
    key: Arg
    """The first of its keys."""
    _slot: int

    def __new__(cls, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Self:
        """Pack it."""
        return cls._of(pack(("EVALSHA", script.sha, len(keys), *keys, *args)), script, keys[0])

    @classmethod
    def _of(cls, packed: bytes, script: Script, key: Arg, slot: int = -1) -> Self:
        self = super().__new__(cls, packed)
        self.script = script
        self.key = key
        self._slot = slot
        return self

    def __repr__(self) -> str:
        return f"<{self.script.name} prepared for {self.key!r}>"  # its arguments may be secret

    __str__ = __repr__  # that of bytes would show them

    @property
    def slot(self) -> int:
        """The cluster slot of its keys, which must share one."""
        if self._slot < 0:
            self._slot = key_slot(self.key)
        return self._slot


class ScriptPrefix:
    """The start of a packed script call: the script, its keys and the arguments that never change."""

    __slots__ = ("_argument_count", "_packed", "_slot", "key", "script")

    def __init__(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> None:
        self.script = script
        self.key = keys[0]
        words = ("EVALSHA", script.sha, len(keys), *keys, *args)
        self._argument_count = len(words)
        self._packed = b"".join(map(pack_argument, words))
        self._slot = key_slot(self.key)

    def with_arguments(self, arguments: Sequence[bytes]) -> PreparedScript:
        """The whole call; each of the arguments was packed by `pack_argument`."""
        count = self._argument_count + len(arguments)
        packed = b"*%d\r\n%b%b" % (count, self._packed, b"".join(arguments))
        return PreparedScript._of(packed, self.script, self.key, self._slot)


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def source_of(sha: str) -> str | None:
    """The source behind a digest, to recover from NOSCRIPT."""
    return _sources.get(sha)
