"""The declaration of events: a stream, its dead letters, and how delivery is retried."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import UnionType
from typing import Any, Generic, Required, TypedDict, TypeVar, Unpack, overload

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue, Store, check_declaration, permanent
from ephemera.patterns.events._entries import DeadLetterEntry, EventCodec, entry_type
from ephemera.patterns.events._group_member import DeliveryPolicy
from ephemera.patterns.events._runtime import BoundEvents
from ephemera.wire import hash_tag_for_slot, key_slot

E = TypeVar("E")

_DEFAULT = DeliveryPolicy()
_SHORTEST_LEASE = timedelta(milliseconds=100)
_RESERVED = ("concurrency", "count", "first", "grace", "group", "handler", "ids", "slot_tag")


class EventsOptions(TypedDict, total=False):
    """The keyword arguments of `Events`."""

    purpose: Required[str]
    delivery: DeliveryPolicy
    hash_tag: str | None
    sensitive: bool
    if_lost: str


class Events(Generic[E]):
    """The declaration of a stream of events: `store[EVENTS]` gives the `BoundEvents` of a store.

    Args:
        catalogue: Where the keys are declaration.
        pattern: The key pattern of the stream; with fields, each value of them has a stream of its own.
        event_type: A `msgspec.Struct`, or a union of tagged ones.
        purpose: What the events are for, for the documentation of the catalogue.
        delivery: How often, and after what delays, an event is delivered.
        hash_tag: The field whose value chooses the cluster slot; the last one by default.
        sensitive: Whether tools hide the events' content.
        if_lost: What is lost with the stream, for the documentation of the catalogue.

    """

    @overload
    def __init__(
        self, catalogue: Catalogue, pattern: str, event_type: type[E], **options: Unpack[EventsOptions]
    ) -> None: ...

    @overload  # a union has no `type[...]`: annotate `USERS: Events[Registered | Removed] = Events(...)`
    def __init__(
        self: Events[Any],
        catalogue: Catalogue,
        pattern: str,
        event_type: UnionType,
        **options: Unpack[EventsOptions],
    ) -> None: ...

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        event_type: Any,
        *,
        purpose: str,
        delivery: DeliveryPolicy = _DEFAULT,
        hash_tag: str | None = None,
        sensitive: bool = False,
        if_lost: str = "events that were not handled yet are lost to their groups",
    ) -> None:
        check_declaration(catalogue, pattern, first_retry=delivery.first_retry, lease=delivery.lease)
        _check(pattern, delivery)
        self.codec: EventCodec[E] = EventCodec(pattern, event_type)
        self.delivery = delivery
        self.keyspace = catalogue.stream(
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
        self._slot_tag: dict[str, FieldValue] = {}
        prefix, tagged = pattern, _tagged(self.keyspace.template.hash_tag)
        if not self.keyspace.template.fields:
            self._slot_tag = {"slot_tag": hash_tag_for_slot(key_slot(pattern))}
            prefix, tagged = f"{pattern}:{{slot_tag}}", {"hash_tag": "slot_tag"}
        self.dead_letters = catalogue.stream(
            f"{prefix}:dead",
            DeadLetterEntry,
            max_length=delivery.max_dead_letters,
            lifetime=permanent(reason="a dead letter waits to be replayed"),
            role="queue",
            purpose="Events that a group could not handle, with the error",
            invalidated_by=("a replay", "newer dead letters"),
            if_lost="events that could not be handled are lost",
            sensitive=sensitive,
            **tagged,
        )
        _refuse_reserved(pattern, self.keyspace.template.fields)
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundEvents[E]:
        """The events of a store that has their catalogue."""
        return BoundEvents(self, store)

    def keys(self, fields: Mapping[str, FieldValue]) -> tuple[str, str]:
        """The keys of a stream and of its dead letters."""
        return (
            self.keyspace.template.render(fields),
            self.dead_letters.template.render({**fields, **self._slot_tag}),
        )

    def __repr__(self) -> str:
        return f"<Events {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def _check(pattern: str, delivery: DeliveryPolicy) -> None:
    lease, first_retry = delivery.lease, delivery.first_retry
    if lease < _SHORTEST_LEASE or not timedelta(0) < first_retry <= lease:
        raise InvalidDeclaration(
            pattern,
            f"a first retry after {first_retry} with a lease of {lease}",
            f"use a lease of at least {_SHORTEST_LEASE}, and a first retry that is not later than that",
        )
    if delivery.max_deliveries < 1 or delivery.max_dead_letters < 1:
        raise InvalidDeclaration(
            pattern,
            f"{delivery.max_deliveries} deliveries, and {delivery.max_dead_letters} dead letters",
            "an event is delivered at least once, and at least one dead letter is kept",
        )


def _last_field(pattern: str) -> str | None:
    """The field that ends last, if any."""
    return pattern.rpartition("}")[0].rpartition("{")[2] or None


def _tagged(field: str | None) -> Any:
    return {} if field is None else {"hash_tag": field}


def _refuse_reserved(pattern: str, fields: tuple[str, ...]) -> None:
    for name in fields:
        if name in _RESERVED:
            raise InvalidDeclaration(pattern, f"{name!r} cannot name a field of events", "rename it")
