"""The operations on progress; what they promise, and what happens when Redis is down: see the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ephemera.keyspace import REDIS_ERRORS, FieldValue, Store
from ephemera.patterns.progress._listener import Listener
from ephemera.patterns.progress._scripts import APPEND
from ephemera.patterns.progress._stream_watcher import Load, Watchtower

if TYPE_CHECKING:
    from ephemera.patterns.progress._declaration import Progress

E = TypeVar("E")


class BoundProgress(Generic[E]):
    """The progress streams of one store: what `store[PROGRESS]` gives."""

    def __init__(self, declared: Progress[E], store: Store) -> None:
        self.declared = declared
        self._stats = store[declared.space].stats
        self._run = store.client(declared.space.role).run
        self._tower: Watchtower[E] = Watchtower(declared, store)

    async def append(self, event: E, /, **fields: FieldValue) -> str:
        """Add an event, wake whoever listens, and return its id."""
        arguments = self.declared.entry_arguments(event, **fields)
        try:
            entry_id: bytes = await self._run(APPEND, (arguments.message,), arguments)
        except REDIS_ERRORS:
            self._stats.errors += 1
            raise
        self._stats.writes += 1
        return entry_id.decode()

    def listen(self, *, snapshot: Load, after: str | None = None, **fields: FieldValue) -> Listener[E]:
        """All events after the one with the id `after`, or from the first on, and those still to come.

        `snapshot` is called with the fields, as in `snapshot(job_id="j1")`, when something may be missing.
        """
        return Listener(self._tower, fields, after, snapshot)
