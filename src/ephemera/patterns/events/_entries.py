"""What stands in a stream and in its dead letters, and how an event becomes an entry and comes back.

An entry has the event as JSON in its field `event`, with the tag of its type where the stream has several. An
event that was put back from the dead letters also says for which group (`_for`) and what its first id was
(`_origin`). Events outlive deployments, so an entry is read by msgspec's rules of evolution and not by the
fingerprint of its shape: unknown fields are ignored, new ones get their defaults. What cannot be read by them
is undecodable, with the reason.
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
_PLAIN_FIELDS = (2, 4)  # an event alone, as other programs may write it, or with its shape, as we do


class Entry(msgspec.Struct, frozen=True):
    """An entry of a stream of events."""

    event: bytes


def entry_type(event_type: Any) -> type[Entry]:
    """The entries of one stream, of which the catalogue shows the events that were declared."""
    shown = {"__holds__": event_type}
    return cast("type[Entry]", msgspec.defstruct("Entry", [], bases=(Entry,), frozen=True, namespace=shown))


class Letter(msgspec.Struct, frozen=True):
    """An entry of the dead letters."""

    event: bytes
    error: str
    deliveries: int
    origin: str
    stream: str
    group: str


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that a group could not handle: what `dead()` gives."""

    id: str
    """Of the letter; `replay` takes it."""
    event: Any
    """The event as JSON has it, or its bytes as text where they are no JSON."""
    error: str
    """What the last attempt failed with."""
    deliveries: int
    origin: str
    """The id that the event had in its stream."""
    stream: str
    group: str

    @classmethod
    def read(cls, letter_id: str, letter: Letter) -> DeadLetter:
        """A letter as people look at it."""
        try:
            event = msgspec.json.decode(letter.event)
        except DECODE_ERRORS:
            event = letter.event.decode("utf-8", "backslashreplace")
        return cls(
            letter_id, event, letter.error, letter.deliveries, letter.origin, letter.stream, letter.group
        )


class Delivery(NamedTuple):
    """What a handler may know of an event besides the event itself."""

    id: str
    """In its stream: the server's milliseconds, and a number."""
    attempt: int
    """How often it was delivered, this time included."""
    stream: str
    group: str
    origin: str
    """Its first id: another than `id` after a replay. One event has one for all its deliveries."""


class Read(NamedTuple):
    """An entry as it was read: an event, or the reason why it is none."""

    event: Any
    group: str | None
    """The one group it is for; None: all of them."""
    origin: str | None
    problem: str | None


class EventCodec(Generic[E]):
    """Writes and reads the events of one stream."""

    def __init__(self, pattern: str, event_type: Any) -> None:
        self._pattern = pattern
        self.types = _types(pattern, event_type)
        self._name = type_name(event_type)
        self._to_json = msgspec.json.Encoder().encode
        self._from_json: Callable[[bytes], E] = msgspec.json.Decoder(event_type).decode

    def encode(self, event: E) -> bytes:
        """An event as JSON; `InvalidValue` for what could not be read again."""
        if type(event) not in self.types:
            raise InvalidValue(self._pattern, self._name, type_name(type(event)))
        data = self._to_json(event)
        try:
            self._from_json(data)
        except DECODE_ERRORS as problem:
            raise InvalidValue(self._pattern, self._name, f"one that is not as declared: {problem}") from None
        return data

    def read(self, flat: Sequence[bytes]) -> Read:
        """The event of an entry, whoever wrote it, or why there is none."""
        group = origin = None
        if len(flat) in _PLAIN_FIELDS and flat[0] == _EVENT:
            data = flat[1]
        else:
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            if _EVENT not in fields:
                return Read(None, None, None, "it has no field 'event'")
            data = fields[_EVENT]
            group, origin = (_text(fields[name]) if name in fields else None for name in (_FOR, _ORIGIN))
        try:
            return Read(self._from_json(data), group, origin, None)
        except DECODE_ERRORS as problem:
            return Read(None, group, origin, f"it cannot be read: {problem}")


def payload(flat: Sequence[bytes]) -> bytes:
    """The event's bytes, or all fields of an entry that has none, as JSON."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if _EVENT in fields:
        return fields[_EVENT]
    return msgspec.json.encode({_text(name): _text(value) for name, value in fields.items()})


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _types(pattern: str, event_type: Any) -> tuple[type, ...]:
    """The classes of a stream's events, once it is certain that they can be told apart."""
    types = get_args(event_type) if isinstance(event_type, UnionType) else (event_type,)
    if not all(isinstance(each, type) and issubclass(each, msgspec.Struct) for each in types):
        raise InvalidDeclaration(
            pattern,
            f"{type_name(event_type)} is no event",
            "an event is a msgspec.Struct, or one of several: UserRegistered | UserRemoved",
        )
    try:
        msgspec.json.Decoder(event_type)
    except TypeError as problem:
        raise InvalidDeclaration(
            pattern,
            f"events of {type_name(event_type)} cannot be told apart: {problem}",
            "give each a tag: class UserRegistered(msgspec.Struct, tag=True)",
        ) from None
    return types
