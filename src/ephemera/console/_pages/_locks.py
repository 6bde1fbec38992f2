"""Locks: who holds what, since when, by which fence, and who waits for it."""

from __future__ import annotations

from functools import partial
from typing import Any

from ephemera.console._components import Column, Empty, empty, section, table, tile, tiles
from ephemera.console._connections import Place
from ephemera.console._moments import NOTHING, lasting, since
from ephemera.console._page import Page
from ephemera.console._sources import Sources, of_place
from ephemera.console._view import View
from ephemera.operations.inspect import KeyFinder, LockState, read_locks
from ephemera.patterns.locks import Locks


def build(view: View) -> None:
    """Draw the page."""
    declared = view.patterns(Locks)
    if not declared:
        empty(
            "No locks are declared",
            "Locks(catalogue, 'lock:{name}', lease=...) declares some: see docs/patterns/locks.md.",
            icon="lock_open",
        )
        return
    with tiles():
        held_tile, waiting, longest = tile("Held now"), tile("Waiting for one"), tile("Held longest")
    with section("Held locks", "A lock whose holder died goes by itself when its lease ends."):
        held = table(
            [
                Column("key", "Lock", kind="mono"),
                Column("holder", "Holder"),
                Column("age", "Held for", kind="time"),
                Column("fence", "Fence", kind="number"),
                Column("lease", "Lease left", kind="time"),
                Column("waiters", "Waiting", kind="number"),
                *of_place(view),
            ],
            empty=Empty(
                "No lock is held", "Locks show up here while a service holds them.", icon="lock_open"
            ),
        )
    finders = {pair: KeyFinder(pair[0].store.client(pair[1].role), pair[1].keyspace) for pair in declared}

    async def read(place: Place, locks: Locks, finder: KeyFinder) -> list[dict[str, Any]]:
        client = place.store.client(locks.role)
        return [_row(place, lock) for lock in await read_locks(client, locks, await finder.search())]

    def show(rows: list[dict[str, Any]]) -> None:
        held.show(sorted(rows, key=lambda row: str(row["key"])))
        held_tile.show(
            f"{len(rows):,}", f"of {len(declared)} {'kind' if len(declared) == 1 else 'kinds'} of lock"
        )
        waiting.show(f"{sum(row['waiters'] for row in rows):,}", "come after those who hold them")
        oldest = max(rows, key=lambda row: row["age_sort"], default=None)
        longest.show(*((NOTHING, "") if oldest is None else (oldest["age"], oldest["key"])))

    sources = Sources(show)

    async def refresh() -> None:
        await sources.refresh({pair: partial(read, *pair, finder) for pair, finder in finders.items()})

    view.every(2, refresh)


def _row(place: Place, lock: LockState) -> dict[str, Any]:
    age = 0.0 if lock.since is None else since(lock.since)
    return {
        "id": f"{place.name}/{lock.key}",
        "key": lock.key,
        "holder": lock.holder or "being handed over",
        "age": lasting(age),
        "age_sort": age,
        "fence": lock.fence or "",
        "lease": lasting(lock.lease_left),
        "lease_sort": lock.lease_left,
        "waiters": lock.waiters,
        "place": place.name,
    }


PAGE = Page("/locks", "Locks", "lock", build)
