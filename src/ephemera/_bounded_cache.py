"""A memo with a limit: a `dict` that empties itself when it is full.

It is for values that are cheap to compute again, such as rendered keys. Reads are plain dict lookups; only
writes pay for the limit. Emptying everything at once needs no bookkeeping per entry, and a working set that
fits is never disturbed.
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict of at most `limit` entries."""

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit and key not in self:
            self.clear()
        super().__setitem__(key, value)
