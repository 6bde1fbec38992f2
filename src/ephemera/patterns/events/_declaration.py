"""The declaration of events: a stream, its dead letters, and what is tried before an event becomes one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import UnionType
from typing import Any, Generic, Required, TypedDict, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue, Store, check_declaration, permanent
from ephemera.patterns.events._entries import EventCodec, Letter, entry_type
from ephemera.patterns.events._runtime import BoundEvents
from ephemera.wire import hash_tag_for_slot, key_slot

E = TypeVar("E")

_LEASE = timedelta(seconds=60)
_FIRST_RETRY = timedelta(seconds=1)
_SHORTEST = timedelta(milliseconds=100)
_RESERVED = ("concurrency", "count", "first", "grace", "group", "handler", "ids", "place")
_declared: WeakKeyDictionary[Catalogue, list[Events[Any]]] = WeakKeyDictionary()


class AboutEvents(TypedDict, total=False):
    """What a declaration may say besides its pattern and its types."""

    purpose: Required[str]
    deliveries: int
    first_retry: timedelta
    lease: timedelta
    dead_letters: int
    hash_tag: str | None
    sensitive: bool
    if_lost: str


class Events(Generic[E]):
    """The declaration of one kind of stream: `store[EVENTS]` gives the `BoundEvents` of a store.

    An event whose handler fails is tried again after `first_retry`, then after twice as long each time, at
    most a `lease`; after so many `deliveries` it is a dead letter, of which the newest `dead_letters` are
    kept. A consumer that died is known by its silence for a `lease`, and its events are taken over.
    """

    @overload
    def __init__(
        self, catalogue: Catalogue, pattern: str, event_type: type[E], **about: Unpack[AboutEvents]
    ) -> None: ...

    @overload  # a union has no `type[...]`: annotate `USERS: Events[Registered | Removed] = Events(...)`
    def __init__(
        self: Events[Any],
        catalogue: Catalogue,
        pattern: str,
        event_type: UnionType,
        **about: Unpack[AboutEvents],
    ) -> None: ...

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        event_type: Any,
        *,
        purpose: str,
        deliveries: int = 10,
        first_retry: timedelta = _FIRST_RETRY,
        lease: timedelta = _LEASE,
        dead_letters: int = 100_000,
        hash_tag: str | None = None,
        sensitive: bool = False,
        if_lost: str = "what was not handled yet did not happen for its groups",
    ) -> None:
        check_declaration(catalogue, pattern, first_retry=first_retry, lease=lease)
        _check(pattern, deliveries, first_retry, lease, dead_letters)
        self.codec: EventCodec[E] = EventCodec(pattern, event_type)
        self.deliveries = deliveries
        self.first_retry = first_retry
        self.lease = lease
        self.dead_letters = dead_letters
        self.space = catalogue.stream(
            pattern,
            entry_type(event_type),
            lifetime=permanent(reason="an event is removed when every group has handled it"),
            role="queue",
            purpose=purpose,
            invalidated_by=("every group's acknowledgement",),
            if_lost=if_lost,
            sensitive=sensitive,
            **_tagged(hash_tag or _last_field(pattern)),
        )
        self._extra: dict[str, FieldValue] = {}
        beside, tagged = pattern, _tagged(self.space.template.hash_tag)
        if not self.space.template.fields:
            self._extra = {"place": hash_tag_for_slot(key_slot(pattern))}
            beside, tagged = f"{pattern}:{{place}}", {"hash_tag": "place"}
        self.dead = catalogue.stream(
            f"{beside}:dead",
            Letter,
            max_length=dead_letters,
            lifetime=permanent(reason="a dead letter waits for somebody to replay it"),
            role="queue",
            purpose="Events that a group could not handle, with the error",
            invalidated_by=("a replay", "newer dead letters"),
            if_lost="events that could not be handled are forgotten",
            sensitive=sensitive,
            **tagged,
        )
        _refuse_reserved(pattern, self.space.template.fields)
        _declared.setdefault(catalogue, []).append(self)
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundEvents[E]:
        """The events of a store that has their catalogue."""
        return BoundEvents(self, store)

    def keys(self, fields: Mapping[str, FieldValue]) -> tuple[str, str]:
        """The stream and its dead letters."""
        return (
            self.space.template.render(fields),
            self.dead.template.render({**fields, **self._extra}),
        )

    def __repr__(self) -> str:
        return f"<Events {self.space.pattern!r} of {self.space.catalogue}>"


def events_of(catalogue: Catalogue) -> list[Events[Any]]:
    """All events that a catalogue declares."""
    return list(_declared.get(catalogue, ()))


def _check(
    pattern: str, deliveries: int, first_retry: timedelta, lease: timedelta, dead_letters: int
) -> None:
    if lease < _SHORTEST or not timedelta(0) < first_retry <= lease:
        raise InvalidDeclaration(
            pattern,
            f"a first retry after {first_retry} with a lease of {lease}",
            f"use a lease of at least {_SHORTEST}, and a first retry that is not later than that",
        )
    if deliveries < 1 or dead_letters < 1:
        raise InvalidDeclaration(
            pattern,
            f"{deliveries} deliveries, and {dead_letters} dead letters",
            "an event is delivered at least once, and at least one letter is kept",
        )


def _last_field(pattern: str) -> str | None:
    """The field that ends last, if any."""
    return pattern.rpartition("}")[0].rpartition("{")[2] or None


def _tagged(field: str | None) -> Any:
    return {} if field is None else {"hash_tag": field}


def _refuse_reserved(pattern: str, fields: tuple[str, ...]) -> None:
    for name in fields:
        if name in _RESERVED:
            raise InvalidDeclaration(
                pattern, f"{name!r} cannot name a field of events", "give it another name"
            )
