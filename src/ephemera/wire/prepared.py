"""A run of a script with the same keys and arguments each time: packed once, sent as it is.

What a rate limit takes of a subject, or how a session is read, does not change from request to request. To
pack it again each time would cost more than to send it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hiredis

from ephemera.wire.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ephemera.wire.commands import Arg
    from ephemera.wire.scripts import Script

_pack: Callable[[tuple[Arg, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class Prepared:
    """One run of a script, ready to be sent by `client.run_prepared`."""

    __slots__ = ("_slot", "key", "packed", "script")

    def __init__(self, script: Script, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> None:
        self.packed = _pack(("EVALSHA", script.sha, len(keys), *keys, *args))
        self.script = script
        self.key = keys[0]
        """The first of its keys."""
        self._slot = -1

    @property
    def slot(self) -> int:
        """The cluster slot of its keys, which must share one."""
        if self._slot < 0:
            self._slot = slot_of(self.key)
        return self._slot
