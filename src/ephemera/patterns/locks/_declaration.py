"""The declaration of locks: the keyspaces of the lock, its fence counter, its waiters and their channels.

All keys of one lock share a cluster slot. Where the pattern has fields, one of them is the hash tag, the last
unless said. A pattern without fields is one key, and its companions carry a short number as their tag that
leads to its slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, FieldValue, Role, Store, check_declaration, fixed, sliding
from ephemera.patterns.locks._acquire import BoundLocks
from ephemera.patterns.locks._lock_keys import Place
from ephemera.wire import hash_tag_for_slot, key_slot

_SHORTEST = timedelta(milliseconds=100)
_FENCE_KEPT = timedelta(days=1)
_RESERVED = ("place", "timeout", "waiter")
_declared: WeakKeyDictionary[Catalogue, list[Locks]] = WeakKeyDictionary()


class Locks:
    """The declaration of one kind of lock: `store[LOCKS]` gives the `BoundLocks` of a store.

    `lease` is how long a lock outlives a holder that died; one that lives renews it. `fence_kept` is how long
    the last fencing number is remembered after its use, against a server clock that is set back.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lease: timedelta,
        purpose: str,
        tag: str | None = None,
        role: Role = "queue",
        fence_kept: timedelta = _FENCE_KEPT,
        spares: str = "two of them doing the same at once",
        if_lost: str = "another may take it; its holder is told, and SQL refuses the older fence",
    ) -> None:
        check_declaration(catalogue, pattern, lease=lease, fence_kept=fence_kept)
        if lease < _SHORTEST or fence_kept < lease:
            raise InvalidDeclaration(
                pattern,
                f"a lease of {lease} with its fence kept for {fence_kept}",
                f"use a lease of at least {_SHORTEST}, and keep the fence for longer than that",
            )
        self.lease = lease
        self.role: Role = role
        self.space = catalogue.value(
            pattern,
            str,
            lifetime=fixed(seconds=lease.total_seconds(), outlives="its renewals, three in a lease"),
            role=role,
            purpose=purpose,
            spares=spares,
            ended_by=("its holder's release",),
            if_lost=if_lost,
            **_tagged(tag or _last_field(pattern)),
        )
        self._extra: dict[str, FieldValue] = {}
        beside, tagged = pattern, _tagged(self.space.template.tag)
        if not self.space.template.fields:
            self._extra = {"place": hash_tag_for_slot(key_slot(pattern))}
            beside, tagged = f"{pattern}:{{place}}", {"tag": "place"}
        self.fences = catalogue.counter(
            f"{beside}:fence",
            lifetime=fixed(seconds=fence_kept.total_seconds(), outlives="a server clock that is set back"),
            role=role,
            purpose="The last fencing number of a lock",
            if_lost="the next one comes from the server's clock alone",
            **tagged,
        )
        self.waiters = catalogue.sorted_set(
            f"{beside}:waiters",
            str,
            lifetime=sliding(
                seconds=2 * lease.total_seconds() + 10, outlives="a waiter's rest, at most a lease"
            ),
            role=role,
            purpose="Who waits for a lock, by when they came",
            spares="polling",
            ended_by=("its last waiter",),
            if_lost="waiters queue anew when the lease ends",
            **tagged,
        )
        self.channel = catalogue.channel(
            f"{beside}:wake:{{waiter}}",
            int,
            role=role,
            purpose="Tells a waiter in how many milliseconds to look at the lock",
            if_lost="the waiter looks when the lease ends",
            **tagged,
        )
        _refuse_reserved(pattern, self.space.template.fields)
        _declared.setdefault(catalogue, []).append(self)
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundLocks:
        """The locks of a store that has their catalogue."""
        for space in (self.fences, self.waiters, self.channel):
            store[space]  # refuses a store without it
        return BoundLocks(self, store)

    def place(self, fields: Mapping[str, FieldValue]) -> Place:
        """The keys of one lock."""
        every = {**fields, **self._extra}
        lock = self.space.template.render(fields)
        waiters = self.waiters.template.render(every)
        return Place((lock, self.fences.template.render(every), waiters), (lock,), (lock, waiters), every)

    def channel_of(self, place: Place, waiter: str) -> str:
        """The channel of one who waits for the lock."""
        return self.channel.template.render({**place.fields, "waiter": waiter})

    def __repr__(self) -> str:
        return f"<Locks {self.space.pattern!r} of {self.space.catalogue}>"


def locks_of(catalogue: Catalogue) -> list[Locks]:
    """All locks that a catalogue declares."""
    return list(_declared.get(catalogue, ()))


def _last_field(pattern: str) -> str | None:
    """The field that ends last, if any."""
    return pattern.rpartition("}")[0].rpartition("{")[2] or None


def _tagged(field: str | None) -> Any:
    return {} if field is None else {"tag": field}


def _refuse_reserved(pattern: str, fields: tuple[str, ...]) -> None:
    for name in fields:
        if name in _RESERVED:
            raise InvalidDeclaration(pattern, f"{name!r} cannot name a lock's field", "give it another name")
