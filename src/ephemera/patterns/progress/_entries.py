"""Entries, positions, and the mirror of a stream: what follows a position, and whether anything is missing.

An id is `<n>-<stamp>`. `n` counts from 1; the stamp is the time of the entry in microseconds, and increases.
A reader's position is the id of the last entry it has. Nothing is missing as long as the stream still holds
that very id. A stream that was trimmed past it, lost, started again or restored from an older copy does not;
then the reader lacks every entry whose stamp is later than its own.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ephemera.keyspace import encode_json

E = TypeVar("E")

_ID = re.compile(r"(0|[1-9][0-9]{0,14})-(0|[1-9][0-9]{0,17})", re.ASCII)

ENDED = "ended"
"""The position of a reader that has seen the end."""


class Position(NamedTuple):
    """The entry after which a reader continues; `n` is 0 before the first."""

    n: int
    stamp: int

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """The position of an id that a client sent, or None if it is malformed."""
        found = _ID.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.n}-{self.stamp}"


START = Position(0, 0)


class ProgressEntry(Generic[E]):
    """One event of a stream, with its id; shared by all listeners, so its JSON is encoded once."""

    def __init__(self, position: Position, event: E, *, is_last: bool) -> None:
        self.position = position
        self.event = event
        self.is_last = is_last
        """Whether nothing follows it."""
        self.encoded: dict[str, bytes] = {}
        """Its encoding for each protocol, made once for all listeners."""

    @cached_property
    def id(self) -> str:
        """What a client sends as its last event id to get what follows."""
        return str(self.position)

    @cached_property
    def data(self) -> bytes:
        """The event as JSON."""
        return encode_json(self.event)

    def __repr__(self) -> str:
        return f"<ProgressEntry {self.id} {self.event!r}>"


class Snapshot(msgspec.Struct, frozen=True):
    """The current state by the application's source of truth, and whether it is final."""

    state: Any
    ended: bool = False


class Missed:
    """A listener may have missed events: a snapshot to replace them, before the events that follow."""

    def __init__(self, position: Position, snapshot: Snapshot, *, recovered: bool = False) -> None:
        self.position = position
        self.snapshot = snapshot
        self.recovered = recovered
        """True for a new listener of an empty stream: the snapshot is all that there is to know."""

    @property
    def is_last(self) -> bool:
        """Whether nothing follows it."""
        return self.snapshot.ended

    @property
    def id(self) -> str:
        """What a client sends as its last event id to get what follows."""
        return ENDED if self.is_last else str(self.position)

    @cached_property
    def data(self) -> bytes:
        """The snapshot as JSON, with `recovered: false` if events were missed."""
        state = {"recovered": self.recovered, "ended": self.snapshot.ended, "state": self.snapshot.state}
        return encode_json(state)

    def __repr__(self) -> str:
        return f"<Missed up to {self.id}: {self.snapshot!r}>"


class Gap:
    """The position of entries that were deleted, or of one that is not of the declared type."""

    is_last = False

    def __init__(self, position: Position) -> None:
        self.position = position


class Reopened:
    """The mark of a stream that continues after a terminal entry, which readers then ignore."""

    is_last = False

    def __init__(self, position: Position) -> None:
        self.position = position


AnyEntry: TypeAlias = ProgressEntry[E] | Gap | Reopened
"""What a stream holds."""


class Mirror(Generic[E]):
    """The entries of a stream as this process last read them, in the order of their `n`."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self.entries: list[AnyEntry[E]] = []

    @property
    def last(self) -> Position | None:
        """The newest entry's position."""
        return self.entries[-1].position if self.entries else None

    def extend(self, entries: list[AnyEntry[E]]) -> None:
        """Append what follows the newest entry, and drop the oldest."""
        self.entries.extend(entries)
        del self.entries[: -self._max_entries]

    def follow(self, position: Position) -> list[AnyEntry[E]] | None:
        """The entries after a position, or None if some in between may be missing."""
        entries = self.entries
        if not entries:
            return [] if position.n == 0 else None
        first = entries[0].position
        following = position.n - first.n + 1  # the index of the next entry
        if following == 0:  # nothing came before the very first entry
            known = position.stamp < first.stamp if position.n == 0 else position == before(first)
            return list(entries) if known else None
        if not (0 < following <= len(entries) and entries[following - 1].position == position):
            # Gaps shift the indexes, so search for it.
            following = next((at for at, each in enumerate(entries, 1) if each.position == position), 0)
        return entries[following:] if following else None

    def holds_end(self, position: Position) -> bool:
        """Whether nothing will ever follow a position."""
        return bool(self.entries) and self.entries[-1].is_last and self.entries[-1].position == position

    @property
    def reopened(self) -> Position | None:
        """Where a reader that has seen the end continues; None if it has not been reopened since."""
        if not self.entries or self.entries[-1].is_last:
            return None
        marks = [each.position for each in self.entries if isinstance(each, Reopened)]
        return marks[-1] if marks else None

    def resume(self, position: Position) -> Position:
        """Where a reader that missed events continues: before the first entry later than its own."""
        previous: Position | None = None
        for entry in self.entries:
            if entry.position.stamp > position.stamp:
                return previous or before(entry.position)
            previous = entry.position
        return previous or Position(0, position.stamp)


def before(first: Position) -> Position:
    """A position for whatever came before an entry."""
    return Position(first.n - 1, first.stamp - 1)
