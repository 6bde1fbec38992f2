"""Usage: what each organization uses in a period, counted in whole numbers, limited before it is used.

    USAGE = Usage(catalogue, measures=["presentations", "tokens", "cost_micros"], purpose="What is used")
    meter = USAGE.meter(store, CounterTable(engine, usage_records, USAGE.counters))
    async with await meter.reserve("acme", tokens=4000, limits={"tokens": 100_000}) as reservation:
        await reservation.settle(tokens=3120, cost_micros=micros("0.00042"))
    (await meter.totals("acme")).used["tokens"]

Keys, all of a row with the number of its shard as their hash tag, all of role `queue`:
`usage:{organization_id}:{period}:{shard}`, the live totals, a hash, 90 days; `...:reserved:{shard}` and
`...:lapses:{shard}`, the reservations; and those of `write_behind`, which takes the amounts to SQL every
15 minutes.
Atomic: an addition to the totals and to what waits for SQL; the check of all limits and the reservation; a
settlement. A denied reservation takes nothing; one whose work died lapses; a settlement counts once, also
when the reservation has lapsed. Periods are months or days of UTC, by the server's clock.
Totals are SQL and all that waits for it, in one trip, and a flush does not change them.
Down: everything raises `Unavailable` at once; `OutcomeUnknown` may be repeated with the same id. There is no
way round Redis here: totals that did not see an addition would be wrong for as long as they live.
Emptied or evicted: totals are made anew out of SQL and what still waits; what was not flushed is lost.
"""

from ephemera.errors import QuotaExceeded
from ephemera.patterns.usage._declaration import Usage
from ephemera.patterns.usage._meter import Meter, Totals, Used
from ephemera.patterns.usage._money import micros, money
from ephemera.patterns.usage._reservations import Reservation

__all__ = ["Meter", "QuotaExceeded", "Reservation", "Totals", "Usage", "Used", "micros", "money"]
