"""The declaration of progress: the keyspace of its streams, the channel that wakes, and which events end it.

Another pattern's script may add an entry in the same step as what it does itself: it is built by
`appending("its.package", "its_name")`, takes `PROGRESS.key(...)` among its KEYS and
`PROGRESS.entry_arguments(...)` among its ARGV, and
calls `append_entry` of `lua/progress_entry.lua` with them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import UnionType
from typing import Any, Generic, TypeVar, cast

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    Catalogue,
    ChannelAccessor,
    FieldValue,
    Fixed,
    Keyspace,
    Role,
    Store,
    StreamAccessor,
    check_declaration,
    choose_codec,
    fixed,
)
from ephemera.patterns.progress._runtime import BoundProgress
from ephemera.patterns.progress._scripts import EntryArguments

E = TypeVar("E")

_HEARTBEAT = timedelta(seconds=15)
_OUTLIVES = "a listener's way back after it lost its connection"
_RESERVED = ("after", "event", "snapshot")


class Progress(Generic[E]):
    """The declaration of one kind of progress: `store[PROGRESS]` gives the `BoundProgress` of a store.

    `event` is a `msgspec.Struct`, or a union of tagged ones, and `terminal` are those of them that nothing
    follows. `wake` names the channel that tells listeners to look. A stream keeps its newest `max_entries`,
    for `lifetime` after the last. `heartbeat` is the quiet after which a connection shows that it is there,
    less than proxies allow.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        event: type[E] | UnionType,
        *,
        wake: str,
        terminal: type[Any] | tuple[type[Any], ...],
        lifetime: Fixed = fixed(hours=2),  # noqa: B008 - it is a constant
        max_entries: int = 200,
        heartbeat: timedelta = _HEARTBEAT,
        hash_tag: str | None = None,
        role: Role = "queue",
        purpose: str = "What has been done so far, for whoever watches",
        if_lost: str = "listeners are told, and get a snapshot from SQL",
    ) -> None:
        check_declaration(catalogue, pattern, heartbeat=heartbeat)
        _check(pattern, lifetime, heartbeat)
        self.terminal = terminal
        self.lifetime = lifetime.milliseconds
        """Milliseconds."""
        self.max_entries = max_entries
        self.heartbeat = heartbeat.total_seconds()
        about: Any = {"hash_tag": hash_tag or pattern.rpartition("}")[0].rpartition("{")[2]}
        self.space: Keyspace[StreamAccessor[E]] = catalogue.stream(
            pattern,
            cast("type[E]", event),
            codec="json",
            max_length=max_entries,
            lifetime=replace(lifetime, outlives=lifetime.outlives or _OUTLIVES),
            role=role,
            purpose=purpose,
            saves="polling SQL",
            if_lost=if_lost,
            **about,
        )
        _refuse_reserved(pattern, self.space.template.fields)
        self.wake: Keyspace[ChannelAccessor[str]] = catalogue.channel(
            wake,
            str,
            role=role,
            purpose=f"Names the stream of {pattern} that has a new entry",
            if_lost="listeners look by themselves within seconds",
        )
        codec = choose_codec(pattern, event, "json")
        self.encode, self.decode = codec.encode, codec.decode

    def key(self, /, **fields: FieldValue) -> str:
        """The key of a stream, for a script that adds to it."""
        return self.space.template.render(fields)

    def entry_arguments(self, event: E, /, **fields: FieldValue) -> EntryArguments:
        """What `append_entry` takes after the stream's key to add an event."""
        key, channel = self.key(**fields), self.wake.template.render({})
        return EntryArguments(self.encode(event), self.max_entries, self.lifetime, channel, key)

    def bind(self, store: Store) -> BoundProgress[E]:
        """The progress of a store that has its catalogue."""
        return BoundProgress(self, store)

    def __repr__(self) -> str:
        return f"<Progress {self.space.pattern!r} of {self.space.catalogue}>"


def _check(pattern: str, lifetime: Any, heartbeat: timedelta) -> None:
    if not isinstance(lifetime, Fixed):
        raise InvalidDeclaration(
            pattern, f"progress cannot live {lifetime}", "use fixed(hours=2), from the last entry"
        )
    if heartbeat <= timedelta(0):
        raise InvalidDeclaration(pattern, f"a heartbeat every {heartbeat}", "give it some seconds")
    if "{" not in pattern:
        raise InvalidDeclaration(
            pattern, "it has no field, so all would share one stream", "add one, as in progress:{job_id}"
        )


def _refuse_reserved(pattern: str, fields: tuple[str, ...]) -> None:
    for name in fields:
        if name in _RESERVED:
            raise InvalidDeclaration(pattern, f"{name!r} cannot name its field", "give it another name")
