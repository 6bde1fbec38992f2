"""Entries, positions, and the mirror of a stream: what follows a position, and whether anything is missing.

An id is `<n>-<stamp>`. `n` counts from 1; the stamp is when the entry was added, in microseconds, and grows.
A reader's position is the id of the last entry it has. What it has is whole as long as the stream still holds
that very id: a stream that was trimmed past it, lost, begun anew, or came back from an older copy does not.
Then what the reader lacks is whatever was added later than what it has, which the stamps tell.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

E = TypeVar("E")

_ID = re.compile(r"(0|[1-9][0-9]{0,14})-(0|[1-9][0-9]{0,17})", re.ASCII)

ENDED = "ended"
"""The position of one who has seen the end."""


class Position(NamedTuple):
    """After which entry a reader is; `n` is 0 before the first."""

    n: int
    stamp: int

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """The position of an id as a client gives it, or None when it is not one."""
        found = _ID.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.n}-{self.stamp}"


START = Position(0, 0)


class Entry(Generic[E]):
    """One event of a stream, with its id; shared by all who listen, so its JSON is written once."""

    def __init__(self, position: Position, event: E, *, ends: bool) -> None:
        self.position = position
        self.event = event
        self.ends = ends
        """Whether nothing follows it."""
        self.written: dict[str, bytes] = {}
        """How it is written for a protocol, by whoever passes it on, for all listeners at once."""

    @cached_property
    def id(self) -> str:
        """What a client gives as its last event id, to get what follows."""
        return str(self.position)

    @cached_property
    def data(self) -> bytes:
        """The event as JSON."""
        return msgspec.json.encode(self.event)

    def __repr__(self) -> str:
        return f"<Entry {self.id} {self.event!r}>"


class Snapshot(msgspec.Struct, frozen=True):
    """How things stand by the application's own truth, and whether nothing more will happen."""

    state: Any
    ended: bool = False


class Missed:
    """What a listener gets when it may have missed something: a snapshot, and after it what follows."""

    recovered = False

    def __init__(self, position: Position, snapshot: Snapshot) -> None:
        self.position = position
        self.snapshot = snapshot

    @property
    def ends(self) -> bool:
        """Whether nothing follows it."""
        return self.snapshot.ended

    @property
    def id(self) -> str:
        """What a client gives as its last event id, to get what follows."""
        return ENDED if self.ends else str(self.position)

    @cached_property
    def data(self) -> bytes:
        """The snapshot as JSON, with `recovered: false`."""
        told = {"recovered": False, "ended": self.snapshot.ended, "state": self.snapshot.state}
        return msgspec.json.encode(told)

    def __repr__(self) -> str:
        return f"<Missed up to {self.id}: {self.snapshot!r}>"


class Hole:
    """Stands in a mirror for what is not there, or is not of the declared type."""

    ends = False

    def __init__(self, position: Position) -> None:
        self.position = position


class Mirror(Generic[E]):
    """The entries that a stream holds, as this process last read them, in the order of their `n`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.entries: list[Entry[E] | Hole] = []

    @property
    def last(self) -> Position | None:
        """The newest entry's position."""
        return self.entries[-1].position if self.entries else None

    def extend(self, entries: list[Entry[E] | Hole]) -> None:
        """Take what follows the newest entry, and drop what is too old."""
        self.entries.extend(entries)
        del self.entries[: -self._most]

    def follow(self, position: Position) -> list[Entry[E] | Hole] | None:
        """What follows a position, or None when something between may be missing."""
        entries = self.entries
        if not entries:
            return [] if position.n == 0 else None
        first = entries[0].position
        following = position.n - first.n + 1  # the index of what comes next
        if following == 0:  # nothing is missing before the first there ever was
            known = position.stamp < first.stamp if position.n == 0 else position == before(first)
            return list(entries) if known else None
        if not (0 < following <= len(entries) and entries[following - 1].position == position):
            # Where holes put the count out, it is found by looking.
            following = next((at for at, each in enumerate(entries, 1) if each.position == position), 0)
        return entries[following:] if following else None

    def holds_end(self, position: Position) -> bool:
        """Whether nothing follows a position, ever."""
        return bool(self.entries) and self.entries[-1].ends and self.entries[-1].position == position

    def resume(self, position: Position) -> Position:
        """Where one who missed something goes on: before the first entry later than what it has."""
        previous: Position | None = None
        for entry in self.entries:
            if entry.position.stamp > position.stamp:
                return previous or before(entry.position)
            previous = entry.position
        return previous or Position(0, position.stamp)


def before(first: Position) -> Position:
    """A position that stands for what came before a stream's first entry, whatever that was."""
    return Position(first.n - 1, first.stamp - 1)
