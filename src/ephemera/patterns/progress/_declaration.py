"""The declaration of progress streams, and its runtime object.

A script of another pattern can append an entry in the same step as its own work: build it with
`progress_script("its.package", "its_name")`, pass `PROGRESS.key(...)` among its KEYS and
`entry_arguments(PROGRESS, ...)` among its ARGV, and call `append_entry` of `lua/entry.lua` with them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    Catalogue,
    ChannelAccessor,
    FieldValue,
    Fixed,
    Keyspace,
    Store,
    StreamAccessor,
    check_declaration,
    check_field_names,
    choose_codec,
    fixed,
    last_field,
)
from ephemera.patterns.progress._listener import Listener
from ephemera.patterns.progress._stream_watcher import SnapshotLoader, StreamWatcher
from ephemera.wire import Script

E = TypeVar("E")

_LIFETIME = fixed(hours=2)
_HEARTBEAT = timedelta(seconds=15)
_OUTLIVES = "a listener's reconnection after it lost its connection"
_RESERVED = ("after", "event", "snapshot")


class EntryArguments(NamedTuple):
    """The arguments of `append_entry` after the stream's key."""

    payload: bytes
    max_entries: int
    lifetime: int  # milliseconds
    channel: str
    message: str
    terminal: str
    """`1` if nothing follows the entry."""


def progress_script(package: str, name: str) -> Script:
    """The script `lua/<name>.lua` of a package, preceded by `lua/entry.lua`, which defines `append_entry`."""
    return Script.load(package, name, shared=("ephemera.patterns.progress:entry",))


APPEND = progress_script("ephemera.patterns.progress", "append")
REOPEN = progress_script("ephemera.patterns.progress", "reopen")


class Progress(Generic[E]):
    """The declaration of progress streams: `store[PROGRESS]` gives the `BoundProgress` of a store.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The key pattern of the streams, with at least one field.
        event: A `msgspec.Struct`, a pydantic model, a dataclass or an attrs class, or a union of tagged
            Structs or of models.
        wake: The name of the channel that wakes listeners.
        terminal: The event types after which nothing follows.
        lifetime: How long a stream is kept after its last entry.
        max_entries: How many of its newest entries a stream keeps.
        heartbeat: After how much silence a connection sends a heartbeat; less than proxies allow.
        hash_tag: The field whose value chooses the cluster slot; the last one by default.
        purpose: What the streams are for, for the documentation of the catalogue.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        event: type[E] | UnionType,
        *,
        wake: str,
        terminal: type[Any] | tuple[type[Any], ...],
        lifetime: Fixed = _LIFETIME,
        max_entries: int = 200,
        heartbeat: timedelta = _HEARTBEAT,
        hash_tag: str | None = None,
        purpose: str = "What has been done so far, for those who watch",
    ) -> None:
        check_declaration(catalogue, pattern, heartbeat=heartbeat)
        _check(pattern, lifetime, heartbeat)
        self.terminal = terminal
        self.lifetime = lifetime.milliseconds
        """Milliseconds."""
        self.max_entries = max_entries
        self.heartbeat = heartbeat.total_seconds()
        self.keyspace: Keyspace[StreamAccessor[E]] = catalogue.stream(
            pattern,
            cast("type[E]", event),
            codec="json",
            max_length=max_entries,
            lifetime=replace(lifetime, outlives=lifetime.outlives or _OUTLIVES),
            role="queue",
            purpose=purpose,
            saves="polling SQL",
            if_lost="listeners are notified, and get a snapshot from SQL",
            hash_tag=hash_tag or last_field(pattern),
        )
        check_field_names(pattern, self.keyspace.template.fields, _RESERVED, "progress")
        self.wake: Keyspace[ChannelAccessor[str]] = catalogue.channel(
            wake,
            str,
            role="queue",
            purpose=f"Names the stream of {pattern} that has a new entry",
            if_lost="listeners read the stream again within seconds",
        )
        codec = choose_codec(pattern, event, "json")
        self.encode, self.decode = codec.encode, codec.decode
        catalogue.patterns.append(self)

    def key(self, /, **fields: FieldValue) -> str:
        """The key of a stream, for a script that appends to it."""
        return self.keyspace.template.render(fields)

    def bind(self, store: Store) -> BoundProgress[E]:
        """The progress of a store that has its catalogue."""
        return BoundProgress(self, store)

    def __repr__(self) -> str:
        return f"<Progress {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def entry_arguments(progress: Progress[E], event: E, /, **fields: FieldValue) -> EntryArguments:
    """The arguments of `append_entry` after the stream's key, to append an event in a script of yours."""
    key, channel = progress.key(**fields), progress.wake.template.render({})
    terminal = "1" if isinstance(event, progress.terminal) else ""
    payload = progress.encode(event)
    return EntryArguments(payload, progress.max_entries, progress.lifetime, channel, key, terminal)


def reopen_arguments(progress: Progress[Any], /, **fields: FieldValue) -> tuple[int, str, str]:
    """The arguments of `reopen_stream` after the stream's key, to continue after a terminal event."""
    return progress.lifetime, progress.wake.template.render({}), progress.key(**fields)


class BoundProgress(Generic[E]):
    """The progress streams of one store: what `store[PROGRESS]` gives."""

    def __init__(self, declaration: Progress[E], store: Store) -> None:
        self.declaration = declaration
        self._stats = store[declaration.keyspace].stats
        self._run = store.client(declaration.keyspace.role).run
        self._watcher: StreamWatcher[E] = StreamWatcher(declaration, store)

    async def append(self, event: E, /, **fields: FieldValue) -> str:
        """Append an event, wake the listeners, and return the entry's id."""
        arguments = entry_arguments(self.declaration, event, **fields)
        with self._stats.counting_errors:
            entry_id: bytes = await self._run(APPEND, (arguments.message,), arguments)
        self._stats.writes += 1
        return entry_id.decode()

    async def reopen(self, **fields: FieldValue) -> None:
        """Let a stream continue after its terminal event, because what it reports was started again.

        New listeners ignore that event and follow what comes; those that had it have ended.
        """
        lifetime, channel, key = reopen_arguments(self.declaration, **fields)
        with self._stats.counting_errors:
            await self._run(REOPEN, (key,), (lifetime, channel, key))

    def listen(
        self, *, snapshot: SnapshotLoader, after: str | None = None, **fields: FieldValue
    ) -> Listener[E]:
        """All events after the one with the id `after`, or from the first one, and those still to come.

        `snapshot` is called with the fields, as in `snapshot(job_id="j1")`, when events may be missing.
        """
        return Listener(self._watcher, fields, after, snapshot)


def _check(pattern: str, lifetime: Any, heartbeat: timedelta) -> None:
    if not isinstance(lifetime, Fixed):
        raise InvalidDeclaration(
            pattern,
            f"progress cannot have the lifetime {lifetime}",
            "use fixed(hours=2), from the last entry",
        )
    if heartbeat <= timedelta(0):
        raise InvalidDeclaration(pattern, f"a heartbeat every {heartbeat}", "use some seconds")
    if "{" not in pattern:
        raise InvalidDeclaration(
            pattern, "it has no field, so all would share one stream", "add one, as in progress:{job_id}"
        )
