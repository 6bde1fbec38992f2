"""Write-behind: what waits for SQL, for how long, and when the last flush was."""

from __future__ import annotations

from functools import partial
from typing import Any

from ephemera.console._components import Column, Empty, empty, section, table, tile, tiles
from ephemera.console._connections import Place
from ephemera.console._moments import NOTHING, ago, lasting, since
from ephemera.console._page import Page
from ephemera.console._sources import Sources, of_place
from ephemera.console._view import View
from ephemera.operations.formatting import format_count
from ephemera.operations.inspect import Backlog, backlog
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords

_LATE = 3  # times its age to be flushed at, and a flusher is behind or gone
_ALLOWED = 30.0  # seconds that even the most frequent flusher may take


def build(view: View) -> None:
    """Draw the page."""
    declared: list[tuple[Place, Any]] = view.patterns(DeferredCounters, DeferredRecords)
    if not declared:
        empty(
            "Nothing is written behind",
            "DeferredCounters and DeferredRecords gather writes for SQL: see docs/patterns/write_behind.md.",
            icon="move_to_inbox",
        )
        return
    with tiles():
        waiting, oldest, flushed = tile("Waiting for SQL"), tile("Oldest"), tile("Last flush")
    with section("Backlogs", "What waits is in Redis alone until a flusher has brought it to SQL."):
        backlogs = table(
            [
                Column("name", "Name", kind="mono"),
                Column("state", "State", kind="badge"),
                Column("full", "Waiting", kind="bar"),
                Column("oldest", "Oldest waits", kind="time"),
                Column("every", "Flushed every", kind="time"),
                Column("flushed", "Last flush", kind="time"),
                Column("brought", "Rows", kind="number"),
                *of_place(view),
            ],
            empty=Empty("Not known yet", "The servers are being asked.", icon="hourglass_empty"),
        )
        backlogs.show([])
    with section("On their way", "Batches that a flusher has sealed and SQL has not confirmed."):
        batches = table(
            [
                Column("name", "Name", kind="mono"),
                Column("shard", "Shard", kind="number"),
                Column("size", "Size", kind="number"),
                Column("by", "Flusher"),
                Column("since", "Since", kind="time"),
            ],
            empty=Empty("No batch is on its way", "A flush takes a moment only.", icon="done_all"),
        )

    async def read(place: Place, pattern: Any) -> list[dict[str, Any]]:
        seen = await backlog(place.store, pattern)
        return [{"row": _row(place, seen), "batches": _batches(place, seen)}]

    def show(found: list[dict[str, Any]]) -> None:
        rows = [each["row"] for each in found]
        backlogs.show(rows)
        batches.show([batch for each in found for batch in each["batches"]])
        waiting.show(f"{sum(row['waiting'] for row in rows):,}", f"in {format_count(len(rows), 'backlog')}")
        late = max(rows, key=lambda row: row["oldest_sort"], default=None)
        if late is not None:
            oldest.show(late["oldest"], late["name"], "warn" if late["state_tone"] == "bad" else "plain")
        last = min((row for row in rows if row["flushed_sort"] >= 0), key=_flushed, default=None)
        flushed.show(*((NOTHING, "none yet") if last is None else (last["flushed"], last["name"])))

    sources = Sources(show)

    async def refresh() -> None:
        await sources.refresh({pair: partial(read, *pair) for pair in declared})

    view.every(2, refresh)


def _flushed(row: dict[str, Any]) -> float:
    return float(row["flushed_sort"])


def _row(place: Place, seen: Backlog) -> dict[str, Any]:
    full = 100 * seen.waiting / seen.limit
    behind = seen.oldest_age > max(_LATE * seen.flush_every, seen.flush_every + _ALLOWED)
    state, tone = (
        ("flushing", "info") if seen.flushing else ("waiting", "plain") if seen.waiting else ("empty", "good")
    )
    if behind:
        state, tone = "behind", "bad"
    return {
        "id": f"{place.name}/{seen.name}",
        "name": seen.name,
        "state": state,
        "state_tone": tone,
        "waiting": seen.waiting,
        "full": round(full, 2),
        "full_text": f"{seen.waiting:,} of {seen.limit:,}",
        "oldest": lasting(seen.oldest_age) if seen.waiting else NOTHING,
        "oldest_sort": seen.oldest_age if seen.waiting else 0,
        "every": lasting(seen.flush_every),
        "every_sort": seen.flush_every,
        "flushed": "never" if seen.last_flush is None else ago(seen.last_flush),
        "flushed_sort": -1 if seen.last_flush is None else since(seen.last_flush),
        "brought": seen.last_flush_size if seen.last_flush else "",
        "place": place.name,
    }


def _batches(place: Place, seen: Backlog) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{place.name}/{seen.name}/{batch.shard}",
            "name": seen.name,
            "shard": batch.shard,
            "size": batch.size,
            "by": batch.by,
            "since": ago(batch.since),
            "since_sort": since(batch.since),
        }
        for batch in seen.flushing
    ]


PAGE = Page("/write-behind", "Write-behind", "move_to_inbox", build)
