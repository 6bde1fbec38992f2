"""The declaration of usage: the counters that wait for SQL, the live totals and the reservations beside them.

All keys of an organization and period carry the number of its shard as their hash tag, so that one script
reaches its total, its reservations and what waits for SQL. Hence the fourth part of `usage:acme:2026-11:{5}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, Store, check_declaration, fixed
from ephemera.patterns.usage._meter import Meter, Totals
from ephemera.patterns.usage._periods import PeriodLength
from ephemera.patterns.write_behind import DeferredCounters

KEY = ("organization_id", "period")
_RESERVED = ("limits", "lasts", "reservation_id", "once", "period")


class Usage:
    """What organizations use in each period: `USAGE.meter(store, table)` records and limits it.

    `measures` are columns of the table, whose key is `organization_id` and `period`. Amounts reach SQL
    when they are `flush_every` old. `kept` is how long the live totals of a period stay in Redis.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        name: str = "usage",
        *,
        measures: Sequence[str],
        purpose: str,
        period: PeriodLength = "month",
        flush_every: timedelta = timedelta(minutes=15),
        kept: timedelta = timedelta(days=90),
        backlog: int = 1_000_000,
        shards: int = 4,
    ) -> None:
        check_declaration(catalogue, name, flush_every=flush_every, kept=kept)
        if period not in ("month", "day"):
            raise InvalidDeclaration(name, f"period={period!r}", "use 'month' or 'day'")
        for measure in measures:
            if measure in _RESERVED or not measure.isidentifier():
                raise InvalidDeclaration(name, f"{measure!r} cannot name a measure", "give it another name")
        self.period = period
        self.counters = DeferredCounters(
            catalogue,
            name,
            key=KEY,
            measures=measures,
            purpose=f"{purpose}: what is not in SQL yet",
            flush_every=flush_every,
            backlog=backlog,
            shards=shards,
        )
        about: dict[str, Any] = {
            "lifetime": fixed(seconds=kept.total_seconds(), outlives="the flush; SQL has it all by then"),
            "role": "queue",
            "hash_tag": "shard",
        }
        pattern = f"{name}:{{organization_id}}:{{period}}"
        self.totals = catalogue.mapping(
            f"{pattern}:{{shard}}",
            int,
            purpose=purpose,
            saves="a sum in SQL for each request",
            if_lost="made anew of SQL and what waits for it",
            **about,
        )
        self.reservations = catalogue.mapping(
            f"{pattern}:reserved:{{shard}}",
            str,
            purpose="What is reserved of a quota, and not used yet",
            invalidated_by=("its settlement", "its release"),
            if_lost="work under way is counted when it is settled",
            **about,
        )
        self.lapses = catalogue.sorted_set(
            f"{pattern}:lapses:{{shard}}",
            str,
            purpose="When reservations lapse whose work has died",
            invalidated_by=("its settlement", "its release"),
            if_lost="reservations stay until the period's keys end",
            **about,
        )

    @property
    def name(self) -> str:
        """What the keys begin with."""
        return self.counters.name

    def meter(self, store: Store, table: Totals) -> Meter:
        """What records and limits use, on a store that has the catalogue and on the table of SQL."""
        for space in (self.totals, self.reservations, self.lapses):
            store[space]  # refuses a store without it
        return Meter(self, store[self.counters], store.client("queue"), table)

    def __repr__(self) -> str:
        return f"<Usage {self.name!r}>"
