"""Commands that are packed by those who send them often, because they know more of them than the wire does.

A `Prepared` is a run of a script with the same keys and arguments each time: what a rate limit takes of a
subject, or how a session is read, does not change from request to request, and to pack it again each time
would cost more than to send it. A read of one key (`read_packing`) is packed while its key is rendered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import hiredis

from ephemera.wire.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ephemera.wire.commands import Arg
    from ephemera.wire.scripts import Script

_pack: Callable[[tuple[Arg, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class Prepared(bytes):
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
            self._slot = slot_of(self.key)
        return self._slot


def read_packing(name: str, before: str, after: str, longest: int) -> tuple[list[str], str]:
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
