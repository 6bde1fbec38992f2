"""Usage: what each organization uses in a period, counted in whole numbers and limited before it is used.

    USAGE = Usage(catalogue, measures=["presentations", "tokens", "cost_micros"], purpose="What is used")
    table = CounterTable(engine, usage_records, USAGE.counters)
    async with connect(url, catalogue, resources={USAGE: table}) as store:
        usage = store[USAGE]
        async with await usage.reserve("acme", tokens=4000, limits={"tokens": 100_000}) as reservation:
            await reservation.settle(tokens=3120, cost_micros=micros("0.00042"))
        (await usage.totals("acme")).used["tokens"]

*Keys.* `usage:{organization_id}:{period}:{shard}` is a hash with the live totals; `...:reserved:{shard}` and
`...:expiries:{shard}` hold the reservations. The keys of `write_behind` take the amounts to SQL every 15
minutes. The number of the shard is the hash tag of them all, and their role is `queue`.

*Lifetimes.* Totals and reservations live for 90 days.

*Atomicity.* One script adds to the totals and to the pending counters. One script checks all limits and
reserves: a denied reservation takes nothing, and one whose work died expires. A settlement counts once, even
when the reservation has expired. Periods are hours, days, weeks or months of UTC or of a `Calendar` with a
time zone and a billing day, by the server's clock. Totals are SQL plus everything pending, in one round trip,
and a flush does not change them.

*When Redis is down.* Everything raises `Unavailable` at once; after `OutcomeUnknown`, retry with the same
idempotency key or reservation id. There is no fallback to SQL here: totals that missed an addition would be
wrong for as long as they live. When totals are lost or evicted, they are rebuilt from SQL and the pending
counters; what was lost before its flush is not counted.
"""

from ephemera.patterns.usage._units import Calendar, micros, money
from ephemera.patterns.usage._usage import BoundUsage, Reservation, Usage, UsageTable, UsageTotals

__all__ = [
    "BoundUsage",
    "Calendar",
    "Reservation",
    "Usage",
    "UsageTable",
    "UsageTotals",
    "micros",
    "money",
]
