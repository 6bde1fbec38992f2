"""The entries of a stream and of its dead letters, and how events are encoded in them.

An entry has the event as JSON in its field `event`, tagged with its type if the stream has several. An event
that was replayed from the dead letters also has the group it is for (`_for`) and its first id (`_origin`).
Events outlive deployments, so an entry is decoded by msgspec's rules of evolution and not by the fingerprint
of its shape: unknown fields are ignored, missing ones get their defaults. Everything else is undecodable,
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_args

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import DECODE_ERRORS, type_name

E = TypeVar("E")

_EVENT = b"event"
_FOR = b"_for"
_ORIGIN = b"_origin"
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
    """Its first id, which is the same for all deliveries; differs from `id` after a replay."""


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
        self._to_json = msgspec.json.Encoder().encode
        self._from_json: Callable[[bytes], E] = msgspec.json.Decoder(event_type).decode

    def encode(self, event: E) -> bytes:
        """An event as JSON; `InvalidValue` for one that could not be decoded again."""
        if type(event) not in self.types:
            raise InvalidValue(self._pattern, self._name, type_name(type(event)))
        data = self._to_json(event)
        try:
            self._from_json(data)
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
            group, origin = (_text(fields[name]) if name in fields else None for name in (_FOR, _ORIGIN))
        try:
            return DecodedEntry(self._from_json(data), group, origin, None)
        except DECODE_ERRORS as problem:
            return DecodedEntry(None, group, origin, f"it cannot be decoded: {problem}")


def payload(flat: Sequence[bytes]) -> bytes:
    """The event's bytes; all fields as JSON if the entry has no event."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if _EVENT in fields:
        return fields[_EVENT]
    return msgspec.json.encode({_text(name): _text(value) for name, value in fields.items()})


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _types(pattern: str, event_type: Any) -> tuple[type, ...]:
    """The classes of a stream's events; refuses those that cannot be distinguished in JSON."""
    types = get_args(event_type) if isinstance(event_type, UnionType) else (event_type,)
    if not all(isinstance(each, type) and issubclass(each, msgspec.Struct) for each in types):
        raise InvalidDeclaration(
            pattern,
            f"{type_name(event_type)} is not an event type",
            "an event is a msgspec.Struct, or one of several: UserRegistered | UserRemoved",
        )
    try:
        msgspec.json.Decoder(event_type)
    except TypeError as problem:
        raise InvalidDeclaration(
            pattern,
            f"events of {type_name(event_type)} cannot be distinguished: {problem}",
            "give each a tag: class UserRegistered(msgspec.Struct, tag=True)",
        ) from None
    return types
