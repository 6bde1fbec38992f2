"""Commands that are packed by those who send them often, because they know more of them than the wire does.

A `PreparedScript` is a run of a script with the same keys and arguments each time: reading a session does not
change from request to request, and packing it again each time would cost more than sending it. A
`ScriptPrefix` is what all runs of a script on the same keys begin with; the caller packs the arguments that
follow (`pack_argument`). A read of one key (`packed_read_parts`) is packed while its key is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import hiredis

from ephemera.wire._commands import Arg
from ephemera.wire._scripts import Script
from ephemera.wire._slots import key_slot

_pack: Callable[[tuple[Arg, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class PreparedScript(bytes):
    """One run of a script, ready to be sent by `client.run_prepared`: the very bytes, and what they are."""

    script: Script
    key: Arg
    """The first of its keys."""
    _slot: int

    def __new__(cls, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Self:
        """Pack it."""
        self = super().__new__(cls, _pack(("EVALSHA", script.sha, len(keys), *keys, *args)))
        self.script = script
        self.key = keys[0]
        self._slot = -1
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
    """What runs of a script begin with: the script, the keys, and the arguments that are always the same."""

    __slots__ = ("_packed", "_words", "key", "script")

    def __init__(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> None:
        self.script = script
        self.key = keys[0]
        words = ("EVALSHA", script.sha, len(keys), *keys, *args)
        self._words = len(words)
        self._packed = b"".join(map(pack_argument, words))

    def followed_by(self, arguments: Sequence[bytes]) -> bytes:
        """A whole run; each of the arguments is `packed`."""
        return b"*%d\r\n%b%b" % (self._words + len(arguments), self._packed, b"".join(arguments))


def pack_argument(word: Arg) -> bytes:
    """One word of a command as it is sent."""
    return _pack((word,))[len("*1\r\n") :]


def packed_read_parts(name: str, before: str, after: str, longest: int) -> tuple[list[str], str]:
    """How to pack a read of a key that varies between two texts, all of ASCII, by at most so many characters.

    `(heads[len(value)] + value + end).encode()` is the command. Those who read often write that out: a call
    of a function for it would cost as much as the packing.
    """
    around = len(before) + len(after)
    heads = [f"*2\r\n${len(name)}\r\n{name}\r\n${around + size}\r\n{before}" for size in range(longest + 1)]
    return heads, f"{after}\r\n"


def key_of(packed: bytes) -> bytes:
    """The key of a packed read of one key."""
    return packed.split(b"\r\n", 4)[4][:-2]
