"""What a lock is on the server: its keys, and the text that says who has it.

The text is the holder's token and its name, host and process. While a lock is handed over, it is the token of
the waiter alone, until that one takes it. The fence of the present holder is what its counter holds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from ephemera.keyspace import FieldValue


class Holder(NamedTuple):
    """Who holds a lock; without a name, and with the fence 0, while it is being handed over."""

    name: str
    fence: int

    @classmethod
    def read(cls, text: bytes, fence: bytes | None) -> Holder:
        """The holder by what a lock and its counter hold."""
        name = text.decode("utf-8", "replace").partition(" ")[2]
        return cls(name, int(fence or 0) if name else 0)

    @property
    def since(self) -> datetime | None:
        """When it was taken, by the server's clock; None while it is being handed over."""
        return datetime.fromtimestamp(self.fence / 1_000_000, UTC) if self.fence else None


class Place(NamedTuple):
    """The keys of one lock, as its scripts take them."""

    taken: tuple[str, str, str]  # the lock, its fence counter, its waiters
    kept: tuple[str]
    released: tuple[str, str]
    fields: dict[str, FieldValue]

    @property
    def lock(self) -> str:
        """The key of the lock itself."""
        return self.taken[0]
