"""The declaration of locks, with their keyspaces in Redis, and the table of fencing tokens in SQL.

All keys of one lock share a cluster slot. Where the pattern has fields, one of them is the hash tag, the last
one unless `hash_tag` names another. A pattern without fields is a single key; its companions carry a short
number as their hash tag that leads to the same slot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ephemera.errors import InvalidDeclaration, InvalidValue, StaleFencingToken
from ephemera.keyspace import Catalogue, FieldValue, Role, Store, check_declaration, fixed, sliding
from ephemera.patterns.locks._acquire import BoundLocks
from ephemera.patterns.locks._held_lock import HeldLock, LockKeys
from ephemera.wire import hash_tag_for_slot, key_slot

_SHORTEST_LEASE = timedelta(milliseconds=100)
_RESERVED = ("slot_tag", "timeout", "waiter")
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")

_CREATE_TABLE = """\
CREATE TABLE IF NOT EXISTS {name} (
    lock text PRIMARY KEY,
    fence bigint NOT NULL,
    seen timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""

_ADMIT = """\
INSERT INTO {name} AS known (lock, fence) VALUES ({lock}, {fence})
ON CONFLICT (lock) DO UPDATE SET fence = excluded.fence, seen = CURRENT_TIMESTAMP
WHERE known.fence <= excluded.fence
RETURNING fence"""


class Locks:
    """The declaration of one kind of lock: `store[LOCKS]` gives the `BoundLocks` of a store."""

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lease: timedelta,
        purpose: str,
        hash_tag: str | None = None,
        role: Role = "queue",
        fence_kept: timedelta = timedelta(days=1),
        saves: str = "two processes doing the same work at once",
        if_lost: str = "another holder may acquire it; the first one is cancelled, and SQL refuses its fence",
    ) -> None:
        """Declare the keys of a lock.

        `lease` is how long a lock outlives a holder that died; a live holder renews it. `fence_kept` is how
        long the last fencing token is remembered after its use, against a server clock that is set back.
        `hash_tag` names the field that decides the cluster slot.
        """
        check_declaration(catalogue, pattern, lease=lease, fence_kept=fence_kept)
        if lease < _SHORTEST_LEASE or fence_kept < lease:
            raise InvalidDeclaration(
                pattern,
                f"a lease of {lease} with its fence kept for {fence_kept}",
                f"use a lease of at least {_SHORTEST_LEASE}, and keep the fence for longer than that",
            )
        self.lease = lease
        self.role: Role = role
        self.keyspace = catalogue.value(
            pattern,
            str,
            lifetime=fixed(seconds=lease.total_seconds(), outlives="its renewals, three in a lease"),
            role=role,
            purpose=purpose,
            saves=saves,
            invalidated_by=("its holder's release",),
            if_lost=if_lost,
            **_tagged(hash_tag or _last_field(pattern)),
        )
        self._extra_fields: dict[str, FieldValue] = {}
        base, tagged = pattern, _tagged(self.keyspace.template.hash_tag)
        if not self.keyspace.template.fields:
            self._extra_fields = {"slot_tag": hash_tag_for_slot(key_slot(pattern))}
            base, tagged = f"{pattern}:{{slot_tag}}", {"hash_tag": "slot_tag"}
        self.fences = catalogue.counter(
            f"{base}:fence",
            lifetime=fixed(seconds=fence_kept.total_seconds(), outlives="a server clock that is set back"),
            role=role,
            purpose="The last fencing token of a lock",
            if_lost="the next one comes from the server's clock alone",
            **tagged,
        )
        self.waiters = catalogue.sorted_set(
            f"{base}:waiters",
            str,
            lifetime=sliding(
                seconds=2 * lease.total_seconds() + 10, outlives="a waiter's pause, at most a lease"
            ),
            role=role,
            purpose="The waiters for a lock, in order of arrival",
            saves="polling",
            invalidated_by=("its last waiter",),
            if_lost="waiters queue again when the lease ends",
            **tagged,
        )
        self.channel = catalogue.channel(
            f"{base}:wake:{{waiter}}",
            int,
            role=role,
            purpose="Tells a waiter in how many milliseconds to try the lock",
            if_lost="the waiter tries when the lease ends",
            **tagged,
        )
        _refuse_reserved(pattern, self.keyspace.template.fields)
        catalogue.patterns.append(self)

    def bind(self, store: Store) -> BoundLocks:
        """Bind the locks to a store that has their catalogue."""
        for keyspace in (self.fences, self.waiters, self.channel):
            store[keyspace]  # raises if the store does not have it
        return BoundLocks(self, store)

    def keys(self, fields: Mapping[str, FieldValue]) -> LockKeys:
        """Render the keys of one lock."""
        every = {**fields, **self._extra_fields}
        lock = self.keyspace.template.render(fields)
        waiters = self.waiters.template.render(every)
        return LockKeys((lock, self.fences.template.render(every), waiters), (lock,), (lock, waiters), every)

    def wake_channel(self, keys: LockKeys, waiter: str) -> str:
        """Render the channel of one waiter for the lock."""
        return self.channel.template.render({**keys.fields, "waiter": waiter})

    def __repr__(self) -> str:
        return f"<Locks {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


class FenceGuard:
    """A SQL table that remembers the largest fencing token of each lock, and refuses a smaller one.

        GUARD = FenceGuard()
        await connection.execute(GUARD.table)                           # once, with the other tables
        async with store[INGEST].hold(schema="bible") as held, connection.transaction():
            cursor = await connection.execute(GUARD.pyformat, GUARD.values(held))
            GUARD.admit(held, await cursor.fetchone())                   # StaleFencingToken: roll back
            ...                                                          # writes of the same transaction

    It must be the first statement of the transaction that writes. It locks the fence's row until the commit,
    which serializes an older and a newer holder: the older one either commits before the newer begins, or is
    refused. PostgreSQL and SQLite understand it. Several services may share the table, as keys identify
    locks. Where you write to a single row of your own, a column does as well: `UPDATE ... SET fence = :fence
    WHERE id = :id AND fence <= :fence`, and no row changed means refused.
    """

    def __init__(self, table: str = "lock_fences") -> None:
        if not _TABLE_NAME.fullmatch(table):
            raise InvalidValue("table", "a name, or schema.name", repr(table))
        self.table = _CREATE_TABLE.format(name=table)
        """Creates the table if it does not exist."""
        self.pyformat = _ADMIT.format(name=table, lock="%(lock)s", fence="%(fence)s")
        """Returns a row, or none for a stale fence; for drivers that take `%(name)s`, such as psycopg."""
        self.named = _ADMIT.format(name=table, lock=":lock", fence=":fence")
        """The same for drivers that take `:name`, such as `sqlalchemy.text` and sqlite3."""

    def values(self, held: HeldLock) -> dict[str, str | int]:
        """The parameters of the statement."""
        return {"lock": held.key, "fence": held.fence}

    def admit(self, held: HeldLock, row: object) -> None:
        """Raise `StaleFencingToken` when the statement returned no row."""
        if row is None:
            raise StaleFencingToken(held.key, held.fence)


def _last_field(pattern: str) -> str | None:
    """The field that ends last, if any."""
    return pattern.rpartition("}")[0].rpartition("{")[2] or None


def _tagged(field: str | None) -> Any:
    return {} if field is None else {"hash_tag": field}


def _refuse_reserved(pattern: str, fields: tuple[str, ...]) -> None:
    for name in fields:
        if name in _RESERVED:
            raise InvalidDeclaration(pattern, f"{name!r} cannot name a lock's field", "give it another name")
