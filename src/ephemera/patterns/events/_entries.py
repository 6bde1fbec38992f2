"""The entries of a stream and of its dead letters, and how events are encoded in them.

An entry has the event as JSON in its field `event`, tagged with its type if the stream has several. An event
that was replayed also has the group it is for (`_for`) and its first id (`_origin`). One of a stream that is
ordered by key has its key (`_key`).

Events outlive deployments: unknown fields are ignored, missing ones get their defaults. Everything else is
undecodable, with the reason. `OnceGuard` is the table of those whose effects in SQL are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import (
    DECODE_ERRORS,
    encode_json,
    is_record,
    json_decoder,
    storable,
    type_name,
)
from ephemera.patterns._guard_table import GuardTable
from ephemera.wire import as_text

E = TypeVar("E")

_EVENT = b"event"
_FOR = b"_for"
_ORIGIN = b"_origin"
_KEY = b"_key"
REPLAYED = "~"
"""Separates the first id of an event from what makes it a new one for SQL guards, after such a replay."""
_PLAIN_FIELDS = (2, 4)  # the event alone, as other programs may write it, or with its shape, as we do


class EventEntry(msgspec.Struct, frozen=True):
    """An entry of a stream of events."""

    event: bytes


def entry_type(event_type: Any) -> type[EventEntry]:
    """The entry type of one stream, which the catalogue documents by its event type."""
    shown = {"__holds__": event_type}
    return cast(
        "type[EventEntry]",
        msgspec.defstruct("EventEntry", [], bases=(EventEntry,), frozen=True, namespace=shown),
    )


class DeadLetterEntry(msgspec.Struct, frozen=True):
    """An entry of the dead letters."""

    event: bytes
    error: str
    deliveries: int
    origin: str
    stream: str
    group: str
    key: str = ""
    """By which the stream is ordered, if it is."""


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that a group could not handle: what `dead_letters()` returns."""

    id: str
    """The id of the dead letter; `replay` takes it."""
    event: Any
    """The event as decoded JSON, or its bytes as text if they are not JSON."""
    error: str
    """The error of the last attempt."""
    deliveries: int
    origin: str
    """The first id of the event in its stream."""
    stream: str
    group: str

    @classmethod
    def decode(cls, letter_id: str, letter: DeadLetterEntry) -> DeadLetter:
        """A dead letter for display."""
        try:
            event = msgspec.json.decode(letter.event)
        except DECODE_ERRORS:
            event = letter.event.decode("utf-8", "backslashreplace")
        return cls(
            letter_id, event, letter.error, letter.deliveries, letter.origin, letter.stream, letter.group
        )


class Delivery(NamedTuple):
    """What a handler gets besides the event itself."""

    id: str
    """The id in its stream: the server's milliseconds, and a number."""
    attempt: int
    """How often it was delivered, this time included."""
    stream: str
    group: str
    origin: str
    """Its first id, which is the same for all deliveries; differs from `id` after a replay.

    After `replay_since(..., again=True)` it ends with `~` and a token, to have the event handled again.
    """


class OnceGuard(GuardTable):
    """A SQL table of handled events, so that a second delivery has no effect.

        ONCE = OnceGuard()
        await ephemera.sql.migrate(engine, ONCE)                           # or `ephemera migrate up`

        async def register(event: UserRegistered, delivery: Delivery) -> None:
            async with pool.connection() as sql, sql.transaction():
                cursor = await sql.execute(ONCE.pyformat, ONCE.values(delivery))
                if ONCE.is_first(await cursor.fetchone()):
                    ...                                                    # writes of the same transaction

    The row and the effect commit together or not at all. Of two concurrent deliveries, the second one waits
    for the commit of the first and then finds its row; after a rollback it becomes the first. PostgreSQL and
    SQLite accept the statement. Streams and groups can share a table. Delete rows whose event cannot be
    delivered again, after a month for example: `DELETE ... WHERE handled < ...`. `version_table` names the
    table in which migrations keep the version; by default `ephemera_schema`.
    """

    _component = "events"
    _parameters = ("stream", "consumers", "event")
    _create = """\
CREATE TABLE IF NOT EXISTS {name} (
    stream text NOT NULL,
    consumers text NOT NULL,
    event text NOT NULL,
    handled timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (stream, consumers, event)
)"""
    _admit = """\
INSERT INTO {name} (stream, consumers, event) VALUES ({stream}, {consumers}, {event})
ON CONFLICT DO NOTHING
RETURNING event"""

    def __init__(self, table: str = "handled_events", *, version_table: str | None = None) -> None:
        super().__init__(table, version_table=version_table)

    def values(self, delivery: Delivery, *, event: str | None = None) -> dict[str, str]:
        """The parameters of the statement; the event is identified by its first id, even after a replay.

        `event` replaces that with an id of your own, the same however often the event is published. You need
        it if the publisher may publish an event twice, as from an outbox. After a replay with `again=True`
        both are new ids.
        """
        first, mark, replay = delivery.origin.partition(REPLAYED)
        named = f"{first if event is None else event}{mark}{replay}"
        return {"stream": delivery.stream, "consumers": delivery.group, "event": named}

    def is_first(self, row: object) -> bool:
        """Whether the statement returned a row: the event was not handled before."""
        return row is not None

    def _columns(self) -> list[Any]:
        from sqlalchemy import Column, DateTime, Text, func

        now = func.current_timestamp()
        handled = Column("handled", DateTime(timezone=True), nullable=False, server_default=now)
        return [*(Column(name, Text, primary_key=True) for name in self._parameters), handled]


class DeliveredEvent(NamedTuple):
    """An event that was delivered to a consumer and is not finished."""

    id: bytes
    event: Any
    delivery: Delivery
    flat: Sequence[bytes]
    """The fields of its entry."""


class DecodedEntry(NamedTuple):
    """The content of an entry: an event, or the reason why it cannot be decoded."""

    event: Any
    group: str | None
    """The one group it is for; None for all of them."""
    origin: str | None
    problem: str | None


class EventCodec(Generic[E]):
    """Encodes and decodes the events of one stream."""

    def __init__(self, pattern: str, event_type: Any) -> None:
        self._pattern = pattern
        self.types = _types(pattern, event_type)
        self._name = type_name(event_type)
        self._classes = tuple(dict if is_typeddict(each) else each for each in self.types)
        self._from_json: Callable[[bytes], E] = _decoder(pattern, event_type)

    def encode(self, event: E) -> bytes:
        """An event as JSON; `InvalidValue` for one that could not be decoded again."""
        if type(event) not in self._classes:
            raise InvalidValue(self._pattern, self._name, type_name(type(event)))
        try:
            data = encode_json(event)
            found = self._from_json(data)
            if type(found) is not type(event):
                raise TypeError(f"it would be read as {type_name(type(found))}")
        except DECODE_ERRORS as problem:
            raise InvalidValue(
                self._pattern, self._name, f"one that does not match its declaration: {problem}"
            ) from None
        return data

    def decode(self, flat: Sequence[bytes]) -> DecodedEntry:
        """The event of an entry, or why it has none; other programs may have written it."""
        group = origin = None
        if len(flat) in _PLAIN_FIELDS and flat[0] == _EVENT:
            data = flat[1]
        else:
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            if _EVENT not in fields:
                return DecodedEntry(None, None, None, "it has no field 'event'")
            data = fields[_EVENT]
            group, origin = (as_text(fields[name]) if name in fields else None for name in (_FOR, _ORIGIN))
        try:
            return DecodedEntry(self._from_json(data), group, origin, None)
        except DECODE_ERRORS as problem:
            return DecodedEntry(None, group, origin, f"it cannot be decoded: {problem}")


def dead_letter_entry(
    flat: Sequence[bytes], error: str, deliveries: int, origin: str, stream: str, group: str
) -> DeadLetterEntry:
    """The dead letter of an entry; its event is all fields as JSON if the entry has none."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    event = fields.get(_EVENT)
    if event is None:
        event = msgspec.json.encode({as_text(name): as_text(value) for name, value in fields.items()})
    return DeadLetterEntry(event, error, deliveries, origin, stream, group, as_text(fields.get(_KEY, b"")))


def _types(pattern: str, event_type: Any) -> tuple[type, ...]:
    """The classes of a stream's events."""
    plain = get_args(event_type)[0] if get_origin(event_type) is Annotated else event_type
    types = get_args(plain) if isinstance(plain, UnionType) or get_origin(plain) is Union else (plain,)
    if not all(map(is_record, types)):
        raise InvalidDeclaration(
            pattern,
            f"{type_name(event_type)} is not an event type",
            "an event is a msgspec.Struct, a pydantic model, a dataclass, an attrs class or a TypedDict, "
            "or one of several Structs or models: UserRegistered | UserRemoved",
        )
    return types


def _decoder(pattern: str, event_type: Any) -> Callable[[bytes], Any]:
    try:
        return json_decoder(storable(event_type))
    except TypeError as problem:
        raise InvalidDeclaration(
            pattern,
            f"events of {type_name(event_type)} cannot be distinguished: {problem}",
            "give each a tag: class UserRegistered(msgspec.Struct, tag=True)",
        ) from None
