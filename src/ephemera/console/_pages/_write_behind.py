"""Write-behind: what waits for SQL, its age, and the last flush."""

from __future__ import annotations

from functools import partial
from typing import Any

from ephemera.console._components import Column, Empty, empty, section, table, tile, tiles
from ephemera.console._connections import Service
from ephemera.console._formats import NO_VALUE, format_age, format_seconds, seconds_since
from ephemera.console._sources import RowSources, service_column
from ephemera.console._view import ConsolePage, View
from ephemera.operations.formatting import format_count
from ephemera.operations.inspect import Backlog, backlog
from ephemera.patterns.write_behind import DeferredCounters, DeferredRecords

_LATE = 3  # flush intervals after which a flusher is late or gone
_MIN_LATE = 30.0  # seconds that even the most frequent flusher may take


def build(view: View) -> None:
    """Draw the page."""
    declared: list[tuple[Service, Any]] = view.patterns(DeferredCounters, DeferredRecords)
    if not declared:
        empty(
            "No write-behind is declared",
            "DeferredCounters and DeferredRecords batch writes for SQL: see docs/patterns/write_behind.md.",
            icon="move_to_inbox",
        )
        return
    with tiles():
        waiting, oldest, flushed = tile("Waiting for SQL"), tile("Oldest"), tile("Last flush")
    with section("Backlogs", "Waiting entries are only in Redis until a flusher has written them to SQL."):
        backlogs = table(
            [
                Column("name", "Name", kind="mono"),
                Column("state", "State", kind="badge"),
                Column("full", "Waiting", kind="bar"),
                Column("oldest", "Oldest", kind="time"),
                Column("every", "Flush interval", kind="time"),
                Column("flushed", "Last flush", kind="time"),
                Column("flush_size", "Rows", kind="number"),
                *service_column(view),
            ],
            empty=Empty("Loading", "The servers are being read.", icon="hourglass_empty"),
        )
        backlogs.show([])
    with section("Being flushed", "Batches that are sealed and not yet committed to SQL."):
        batches = table(
            [
                Column("name", "Name", kind="mono"),
                Column("shard", "Shard", kind="number"),
                Column("size", "Size", kind="number"),
                Column("by", "Flusher"),
                Column("since", "Since", kind="time"),
            ],
            empty=Empty("No batches", "A flush takes only a moment.", icon="done_all"),
        )

    async def read(service: Service, pattern: Any) -> list[dict[str, Any]]:
        seen = await backlog(service.store, pattern)
        return [{"row": _row(service, seen), "batches": _batches(service, seen)}]

    def show(found: list[dict[str, Any]]) -> None:
        rows = [each["row"] for each in found]
        backlogs.show(rows)
        batches.show([batch for each in found for batch in each["batches"]])
        waiting.show(f"{sum(row['waiting'] for row in rows):,}", f"in {format_count(len(rows), 'backlog')}")
        late = max(rows, key=lambda row: row["oldest_sort"], default=None)
        if late is not None:
            oldest.show(late["oldest"], late["name"], "warn" if late["state_tone"] == "bad" else "plain")
        last = min((row for row in rows if row["flushed_sort"] >= 0), key=_flushed, default=None)
        flushed.show(*((NO_VALUE, "none yet") if last is None else (last["flushed"], last["name"])))

    sources = RowSources(show)

    async def refresh() -> None:
        await sources.refresh({pair: partial(read, *pair) for pair in declared})

    view.every(2, refresh)


def _flushed(row: dict[str, Any]) -> float:
    return float(row["flushed_sort"])


def _row(service: Service, seen: Backlog) -> dict[str, Any]:
    full = 100 * seen.waiting / seen.limit
    behind = seen.oldest_age > max(_LATE * seen.flush_every, seen.flush_every + _MIN_LATE)
    state, tone = (
        ("flushing", "info") if seen.flushing else ("waiting", "plain") if seen.waiting else ("empty", "good")
    )
    if behind:
        state, tone = "behind", "bad"
    return {
        "id": f"{service.name}/{seen.name}",
        "name": seen.name,
        "state": state,
        "state_tone": tone,
        "waiting": seen.waiting,
        "full": round(full, 2),
        "full_text": f"{seen.waiting:,} of {seen.limit:,}",
        "oldest": format_seconds(seen.oldest_age) if seen.waiting else NO_VALUE,
        "oldest_sort": seen.oldest_age if seen.waiting else 0,
        "every": format_seconds(seen.flush_every),
        "every_sort": seen.flush_every,
        "flushed": "never" if seen.last_flush is None else format_age(seen.last_flush),
        "flushed_sort": -1 if seen.last_flush is None else seconds_since(seen.last_flush),
        "flush_size": seen.last_flush_size if seen.last_flush else "",
        "service": service.name,
    }


def _batches(service: Service, seen: Backlog) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{service.name}/{seen.name}/{batch.shard}",
            "name": seen.name,
            "shard": batch.shard,
            "size": batch.size,
            "by": batch.by,
            "since": format_age(batch.since),
            "since_sort": seconds_since(batch.since),
        }
        for batch in seen.flushing
    ]


PAGE = ConsolePage("/write-behind", "Write-behind", "move_to_inbox", build)
