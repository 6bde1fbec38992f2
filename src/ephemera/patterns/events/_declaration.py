"""The declaration of a stream of events, and of the keys beside it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import UnionType
from typing import Any, Generic, Required, TypedDict, TypeVar, Unpack, overload

import msgspec

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import (
    Catalogue,
    FieldValue,
    Keyspace,
    Store,
    check_declaration,
    check_field_names,
    fixed,
    last_field,
    permanent,
    record_fields,
)
from ephemera.patterns.events._entries import DeadLetterEntry, EventCodec, entry_type
from ephemera.patterns.events._group_info import StreamKeys
from ephemera.patterns.events._group_member import BELL_LIFETIME, LANES_LIFETIME
from ephemera.patterns.events._policy import LONGEST_PAUSE, DeliveryPolicy
from ephemera.patterns.events._runtime import BoundEvents
from ephemera.wire import hash_tag_for_slot, key_slot

E = TypeVar("E")

_DEFAULT = DeliveryPolicy()
_SHORTEST_LEASE = timedelta(milliseconds=100)
_RESERVED = (
    "again", "concurrency", "count", "first", "grace", "group", "handler", "ids", "limit", "on_error",
    "reader", "since", "slot_tag", "until",
)  # fmt: skip


class BellEntry(msgspec.Struct, frozen=True):
    """An entry that says nothing but that it is there."""

    ring: str


class EventsOptions(TypedDict, total=False):
    """The keyword arguments of `Events`."""

    purpose: Required[str]
    delivery: DeliveryPolicy
    order_by: str | None
    hash_tag: str | None
    sensitive: bool
    if_lost: str


class Events(Generic[E]):
    """The declaration of a stream of events: `store[EVENTS]` gives the `BoundEvents` of a store.

    Args:
        catalogue: Where the keys are declared.
        pattern: The key pattern of the stream; with fields, each value of them has a stream of its own.
        event_type: A `msgspec.Struct`, a pydantic model, a dataclass, an attrs class or a TypedDict, or a
            union of tagged Structs or of models.
        purpose: What the events are for, for the documentation of the catalogue.
        delivery: How often, and after what delays, an event is delivered.
        order_by: A field that all events have; events with the same value of it are handled one after
            another, in their order, by each group. None if their order does not matter.
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
        order_by: str | None = None,
        hash_tag: str | None = None,
        sensitive: bool = False,
        if_lost: str = "events that were not handled yet are lost to their groups",
    ) -> None:
        check_declaration(catalogue, pattern, first_retry=delivery.first_retry, lease=delivery.lease)
        _check(pattern, delivery)
        self.codec: EventCodec[E] = EventCodec(pattern, event_type)
        self.delivery = delivery
        self.order_by = order_by
        if order_by is not None:
            _check_order(pattern, self.codec.types, order_by)
        self.keyspace = catalogue.stream(
            pattern,
            entry_type(event_type),
            lifetime=permanent(reason="an event is removed when every group has handled it"),
            role="queue",
            purpose=purpose,
            invalidated_by=("every group's acknowledgement",),
            if_lost=if_lost,
            sensitive=sensitive,
            hash_tag=hash_tag or last_field(pattern),
        )
        self._slot_tag: dict[str, FieldValue] = {}
        prefix, tag_field = pattern, self.keyspace.template.hash_tag
        if not self.keyspace.template.fields:
            self._slot_tag = {"slot_tag": hash_tag_for_slot(key_slot(self.keyspace.key()))}
            prefix, tag_field = f"{pattern}:{{slot_tag}}", "slot_tag"
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
            hash_tag=tag_field,
        )
        self.paused = catalogue.mapping(
            f"{prefix}:paused",
            str,
            lifetime=fixed(milliseconds=2 * LONGEST_PAUSE + 60_000, outlives="the pause"),
            role="queue",
            purpose="Groups paused because a dependency is down: when to try again, and the error",
            invalidated_by=("a trial that succeeds",),
            if_lost="the groups resume, and pause again if the dependency is still down",
            sensitive=sensitive,
            hash_tag=tag_field,
        )
        self.bell = catalogue.stream(
            f"{prefix}:bell:{{reader}}",
            BellEntry,
            max_length=1,
            lifetime=fixed(milliseconds=BELL_LIFETIME, outlives="the wait that it ends"),
            role="queue",
            purpose="Ends the XREAD in which a process waits for its streams, to add one of them",
            if_lost="a stream is waited for some seconds later",
            hash_tag=tag_field,
        )
        self.lanes: Keyspace[Any] | None = None
        if order_by is not None:
            self.lanes = catalogue.sorted_set(
                f"{prefix}:lanes",
                str,
                lifetime=fixed(milliseconds=LANES_LIFETIME, outlives="the events in it"),
                role="queue",
                purpose=f"Delivered events that are not finished, in order, by group and {order_by}",
                invalidated_by=("the acknowledgement of an event",),
                if_lost="built again as events are claimed; until then some may overtake others",
                hash_tag=tag_field,
            )
        check_field_names(pattern, self.keyspace.template.fields, _RESERVED, "events")
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundEvents[E]:
        """The events of a store that has their catalogue."""
        return BoundEvents(self, store)

    def keys(self, fields: Mapping[str, FieldValue]) -> StreamKeys:
        """The keys of a stream, its dead letters and its paused groups."""
        every = {**fields, **self._slot_tag}
        return StreamKeys(
            self.keyspace.template.render(fields),
            self.dead_letters.template.render(every),
            self.paused.template.render(every),
        )

    def lanes_key(self, fields: Mapping[str, FieldValue]) -> str | None:
        """The key of a stream's lanes, if it is ordered."""
        return None if self.lanes is None else self.lanes.template.render({**fields, **self._slot_tag})

    def bell_key(self, fields: Mapping[str, FieldValue], reader: str) -> str:
        """The key by which a process ends its wait for streams of this one's slot."""
        return self.bell.template.render({**fields, **self._slot_tag, "reader": reader})

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
    if delivery.retention < timedelta(0):
        raise InvalidDeclaration(pattern, f"a retention of {delivery.retention}", "it cannot be negative")
    if delivery.max_deliveries < 1 or delivery.max_dead_letters < 1:
        raise InvalidDeclaration(
            pattern,
            f"{delivery.max_deliveries} deliveries, and {delivery.max_dead_letters} dead letters",
            "an event is delivered at least once, and at least one dead letter is kept",
        )


def _check_order(pattern: str, types: tuple[type, ...], order_by: str) -> None:
    for each in types:
        if order_by not in {field.name for field in record_fields(pattern, each)}:
            raise InvalidDeclaration(
                pattern,
                f"{each.__name__} has no field {order_by!r} to order by",
                "name a field that all events of the stream have",
            )
