"""Locks, semaphores and read-write locks: holders, age, fencing token, lease and waiters."""

from __future__ import annotations

from functools import partial
from typing import Any

from ephemera.console._components import Column, Empty, empty, section, table, tile, tiles
from ephemera.console._connections import Service
from ephemera.console._formats import NO_VALUE, format_seconds, seconds_since
from ephemera.console._sources import RowSources, service_column
from ephemera.console._view import ConsolePage, View
from ephemera.operations.inspect import KeyFinder, LockState, read_locks
from ephemera.patterns.locks import LockDeclaration


def build(view: View) -> None:
    """Draw the page."""
    declared = view.patterns(LockDeclaration)
    if not declared:
        empty(
            "No locks are declared",
            "Declare them with Locks(catalogue, 'lock:{name}', lease=...): see docs/patterns/locks.md.",
            icon="lock_open",
        )
        return
    with tiles():
        held_tile, waiting, longest = tile("Held"), tile("Waiting"), tile("Held longest")
    with section("Held locks", "If a holder dies, its lock is released when the lease expires."):
        held = table(
            [
                Column("key", "Lock", kind="mono"),
                Column("holder", "Holder"),
                Column("age", "Held for", kind="time"),
                Column("fence", "Fencing token", kind="number"),
                Column("lease", "Lease left", kind="time"),
                Column("waiters", "Waiting", kind="number"),
                Column("mode", "Held as"),
                *service_column(view),
            ],
            empty=Empty("No lock is held", "Locks appear here while a service holds them.", icon="lock_open"),
        )
    finders = {pair: KeyFinder(pair[0].store.client(pair[1].role), pair[1].keyspace) for pair in declared}

    async def read(service: Service, locks: LockDeclaration, finder: KeyFinder) -> list[dict[str, Any]]:
        client = service.store.client(locks.role)
        return [_row(service, lock) for lock in await read_locks(client, locks, await finder.search())]

    def show(rows: list[dict[str, Any]]) -> None:
        held.show(sorted(rows, key=lambda row: str(row["key"])))
        held_tile.show(
            f"{len(rows):,}", f"of {len(declared)} {'kind' if len(declared) == 1 else 'kinds'} of lock"
        )
        waiters = {(row["service"], row["key"]): row["waiters"] for row in rows}  # of each lock once
        waiting.show(f"{sum(waiters.values()):,}", "for any lock")
        oldest = max(rows, key=lambda row: row["age_sort"], default=None)
        longest.show(*((NO_VALUE, "") if oldest is None else (oldest["age"], oldest["key"])))

    sources = RowSources(show)

    async def refresh() -> None:
        await sources.refresh({pair: partial(read, *pair, finder) for pair, finder in finders.items()})

    view.every(2, refresh)


def _row(service: Service, lock: LockState) -> dict[str, Any]:
    age = 0.0 if lock.since is None else seconds_since(lock.since)
    return {
        "id": f"{service.name}/{lock.key} {lock.mode} {lock.holder} {lock.since}",
        "key": lock.key,
        "mode": lock.mode,
        "holder": lock.holder or "(changing holder)",
        "age": format_seconds(age),
        "age_sort": age,
        "fence": lock.fence or "",
        "lease": format_seconds(lock.lease_left),
        "lease_sort": lock.lease_left,
        "waiters": lock.waiters,
        "service": service.name,
    }


PAGE = ConsolePage("/locks", "Locks", "lock", build)
