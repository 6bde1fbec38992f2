"""The declarations of locks, semaphores and read-write locks, and the table of their fencing tokens in SQL.

All keys of one lock share a cluster slot. Where the pattern has fields, one of them is the hash tag, the last
one unless `hash_tag` names another. A pattern without fields is a single key; its companions carry a short
number as their hash tag that leads to the same slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ephemera.errors import InvalidDeclaration, StaleFencingToken
from ephemera.keyspace import (
    Catalogue,
    FieldValue,
    Keyspace,
    Role,
    Store,
    check_declaration,
    check_field_names,
    fixed,
    last_field,
    sliding,
)
from ephemera.patterns._guard_table import GuardTable
from ephemera.patterns.locks._held_lock import HeldLock, LockKeys
from ephemera.patterns.locks._runtime import BoundLocks, BoundReadWriteLocks, BoundSemaphores
from ephemera.wire import hash_tag_for_slot, key_slot

_SHORTEST_LEASE = timedelta(milliseconds=100)
_DAY = timedelta(days=1)
_MAX_PERMITS = 1000
_RESERVED = ("slot_tag", "timeout", "waiter")


class LockDeclaration:
    """What the declarations of locks, semaphores and read-write locks have in common."""

    _has_one_holder = True
    _saves = "two processes doing the same work at once"
    _if_lost = "another holder may acquire it; the first one is cancelled, and SQL refuses its fence"

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        lease: timedelta,
        purpose: str,
        hash_tag: str | None = None,
        role: Role = "queue",
        fence_kept: timedelta = _DAY,
        saves: str | None = None,
        if_lost: str | None = None,
    ) -> None:
        check_declaration(catalogue, pattern, lease=lease, fence_kept=fence_kept)
        if lease < _SHORTEST_LEASE or fence_kept < lease:
            raise InvalidDeclaration(
                pattern,
                f"a lease of {lease} with its fence kept for {fence_kept}",
                f"use a lease of at least {_SHORTEST_LEASE}, and keep the fence for longer than that",
            )
        self.lease = lease
        self.role: Role = role
        held = fixed(seconds=lease.total_seconds(), outlives="its renewals, three in a lease")
        declare: Any = catalogue.value if self._has_one_holder else catalogue.sorted_set
        self.keyspace: Keyspace[Any] = declare(
            pattern,
            str,
            lifetime=held,
            role=role,
            purpose=purpose,
            saves=saves or self._saves,
            invalidated_by=("its holder's release",),
            if_lost=if_lost or self._if_lost,
            hash_tag=hash_tag or last_field(pattern),
        )
        self._extra_fields: dict[str, FieldValue] = {}
        base, tag_field = pattern, self.keyspace.template.hash_tag
        if not self.keyspace.template.fields:
            self._extra_fields = {"slot_tag": hash_tag_for_slot(key_slot(self.keyspace.key()))}
            base, tag_field = f"{pattern}:{{slot_tag}}", "slot_tag"
        self.fences = catalogue.counter(
            f"{base}:fence",
            lifetime=fixed(seconds=fence_kept.total_seconds(), outlives="a server clock that is set back"),
            role=role,
            purpose="The last fencing token of a lock",
            if_lost="the next one comes from the server's clock alone",
            hash_tag=tag_field,
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
            hash_tag=tag_field,
        )
        self.channel = catalogue.channel(
            f"{base}:wake:{{waiter}}",
            int,
            role=role,
            purpose="Wakes a waiter: in how many milliseconds to try the lock",
            if_lost="the waiter tries when the lease ends",
            hash_tag=tag_field,
        )
        self._companions: list[Keyspace[Any]] = [self.fences, self.waiters]
        if not self._has_one_holder:
            grants = catalogue.mapping(
                f"{base}:grants",
                str,
                lifetime=held,
                role=role,
                purpose="What each holder has: its permit, its fencing token, since when, its name",
                invalidated_by=("its holder's release",),
                if_lost="its holder is cancelled, as if the lock were lost",
                hash_tag=tag_field,
            )
            self._companions.append(grants)
        check_field_names(pattern, self.keyspace.template.fields, _RESERVED, "locks")
        catalogue.patterns.append(self)

    def _keys(self, fields: Mapping[str, FieldValue]) -> LockKeys:
        """Render the keys of one lock."""
        every = {**fields, **self._extra_fields}
        lock = self.keyspace.template.render(fields)
        keys = (lock, *(each.template.render(every) for each in self._companions))
        if len(keys) == 3:
            return LockKeys(keys, (lock,), (lock, keys[2]), every)
        return LockKeys(keys, keys, keys, every)

    def _wake_channel(self, keys: LockKeys, waiter: str) -> str:
        """Render the channel of one waiter for the lock."""
        return self.channel.template.render({**keys.fields, "waiter": waiter})

    def _checked(self, store: Store) -> Store:
        """Return a store that has all keyspaces; it raises otherwise."""
        for keyspace in (*self._companions, self.channel):
            store[keyspace]
        return store

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


def lock_keys(locks: LockDeclaration, fields: Mapping[str, FieldValue]) -> LockKeys:
    """The keys of one lock, for tools that inspect it."""
    return locks._keys(fields)


class Locks(LockDeclaration):
    """The declaration of one kind of lock: `store[LOCKS]` gives the `BoundLocks` of a store.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The pattern of the locks' keys, such as `"lock:order:{order_id}"`.
        lease: How long a lock outlives a holder that died, at least 100 milliseconds; a live holder renews
            it.
        purpose: What the lock is for, for the generated documentation.
        hash_tag: The field that decides the cluster slot; by default the last one.
        role: The server that has the locks: one that does not evict.
        fence_kept: How long the last fencing token is remembered after its use, against a server clock that
            is set back; by default a day.
        saves: What the lock avoids.
        if_lost: What happens when a lock is lost.

    """

    def bind(self, store: Store) -> BoundLocks:
        """Bind the locks to a store that has their catalogue."""
        return BoundLocks(self, self._checked(store))


class Semaphores(LockDeclaration):
    """The declaration of one kind of semaphore: `store[SEMAPHORES]` gives the `BoundSemaphores` of a store.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The pattern of the semaphores' keys, such as `"slots:render:{region}"`.
        permits: How many may hold a semaphore at once, at most 1000. During a deployment that changes the
            number each process applies its own.
        lease: How long a permit outlives a holder that died, at least 100 milliseconds; a live holder renews
            it.
        purpose: What the semaphore is for, for the generated documentation.
        hash_tag: The field that decides the cluster slot; by default the last one.
        role: The server that has the semaphores: one that does not evict.
        fence_kept: How long the last fencing token is remembered after its use, against a server clock that
            is set back; by default a day.
        saves: What the semaphore avoids.
        if_lost: What happens when a permit is lost.

    """

    _has_one_holder = False
    _saves = "more work at once than its resource can take"
    _if_lost = "others may acquire permits; the holders are cancelled, and SQL refuses their fences"

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        *,
        permits: int,
        lease: timedelta,
        purpose: str,
        hash_tag: str | None = None,
        role: Role = "queue",
        fence_kept: timedelta = _DAY,
        saves: str | None = None,
        if_lost: str | None = None,
    ) -> None:
        if type(permits) is not int or not 1 <= permits <= _MAX_PERMITS:
            raise InvalidDeclaration(
                pattern, f"permits={permits!r}", f"use a whole number from 1 to {_MAX_PERMITS}"
            )
        self.permits = permits
        super().__init__(
            catalogue,
            pattern,
            lease=lease,
            purpose=purpose,
            hash_tag=hash_tag,
            role=role,
            fence_kept=fence_kept,
            saves=saves,
            if_lost=if_lost,
        )

    def bind(self, store: Store) -> BoundSemaphores:
        """Bind the semaphores to a store that has their catalogue."""
        return BoundSemaphores(self, self._checked(store))


class ReadWriteLocks(LockDeclaration):
    """The declaration of one kind of read-write lock: `store[X]` gives the `BoundReadWriteLocks`.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The pattern of the locks' keys, such as `"lock:index:{name}"`.
        lease: How long a lock outlives a holder that died, at least 100 milliseconds; a live holder renews
            it.
        purpose: What the lock is for, for the generated documentation.
        hash_tag: The field that decides the cluster slot; by default the last one.
        role: The server that has the locks: one that does not evict.
        fence_kept: How long the last fencing token is remembered after its use, against a server clock that
            is set back; by default a day.
        saves: What the lock avoids.
        if_lost: What happens when a lock is lost.

    """

    _has_one_holder = False
    _saves = "readers that see half of a change, and two writers at once"
    _if_lost = "another may acquire it; the holders are cancelled, and SQL refuses their fences"

    def bind(self, store: Store) -> BoundReadWriteLocks:
        """Bind the read-write locks to a store that has their catalogue."""
        return BoundReadWriteLocks(self, self._checked(store))


class FenceGuard(GuardTable):
    """A SQL table that remembers the largest fencing token of each lock, and refuses a smaller one.

        GUARD = FenceGuard()
        await ephemera.sql.migrate(engine, GUARD)                       # or `ephemera migrate up`
        async with store[INGEST].hold(schema="bible") as held, connection.transaction():
            cursor = await connection.execute(GUARD.pyformat, GUARD.values(held))
            GUARD.admit(held, await cursor.fetchone())                   # StaleFencingToken: roll back
            ...                                                          # writes of the same transaction

    It must be the first statement of the transaction that writes. It locks the fence's row until the commit,
    which serializes an older and a newer holder: the older one either commits before the newer begins, or is
    refused. PostgreSQL and SQLite understand it. Several services may share the table, as keys identify
    locks; each permit of a semaphore has a row of its own. Where you write to a single row of your own, a
    column does as well: `UPDATE ... SET fence = :fence WHERE id = :id AND fence <= :fence`, and no row
    changed means refused. `version_table` names the table in which migrations keep the version; by default
    `ephemera_schema`.
    """

    _component = "locks"
    _parameters = ("lock", "fence")
    _create = """\
CREATE TABLE IF NOT EXISTS {name} (
    lock text PRIMARY KEY,
    fence bigint NOT NULL,
    seen timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""
    _admit = """\
INSERT INTO {name} AS known (lock, fence) VALUES ({lock}, {fence})
ON CONFLICT (lock) DO UPDATE SET fence = excluded.fence, seen = CURRENT_TIMESTAMP
WHERE known.fence <= excluded.fence
RETURNING fence"""

    def __init__(self, table: str = "lock_fences", *, version_table: str | None = None) -> None:
        super().__init__(table, version_table=version_table)

    def values(self, held: HeldLock) -> dict[str, str | int]:
        """The parameters of the statement."""
        return {"lock": held.fenced, "fence": held.fence}

    def admit(self, held: HeldLock, row: object) -> None:
        """Raise `StaleFencingToken` when the statement returned no row."""
        if row is None:
            raise StaleFencingToken(held.fenced, held.fence)

    def _columns(self) -> list[Any]:
        from sqlalchemy import BigInteger, Column, DateTime, Text, func

        now = func.current_timestamp()
        return [
            Column("lock", Text, primary_key=True),
            Column("fence", BigInteger, nullable=False),
            Column("seen", DateTime(timezone=True), nullable=False, server_default=now),
        ]
