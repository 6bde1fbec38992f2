"""Typed events on streams, delivered to every consumer group at least once.

    USERS: Events[Registered | Removed] = Events(
        catalogue, "gl:events:users", Registered | Removed, purpose="Accounts that came and went")
    await store[USERS].publish(Registered(user_id="7"))

    async def welcome(event: Registered | Removed, delivery: Delivery) -> None: ...
    async with store[USERS].consume("mailer", welcome):    # consumes until the block ends

*Keys.* The stream has no lifetime; it is trimmed up to the first event that some group has not handled.
`...:dead` holds the newest 100,000 dead letters. Both share a cluster slot by a hash tag.

*Atomicity.* One script each: `publish`; every 500 events of `publish_many`; writing a dead letter and
acknowledging its event; replaying one; trimming; removing a consumer that has nothing pending. Only the
consumer that has a pending entry changes it.

*Delivery.* A consumer handles ten events at a time by default, each at least once. An event is acknowledged
when its handler has returned. If the handler raises, it is retried after a second, two, four, and so on up to
a lease; after the last delivery it becomes a dead letter with its error. An event that cannot be decoded
becomes one at once, and delays no other. Handlers run concurrently, so the stream's order is the order in
which they start. `OnceGuard` makes delivery exactly once for effects in SQL.

*When a consumer dies.* Its pending events are claimed after a lease, by the next consumer that checks.

*When Redis is down.* `publish` raises `Unavailable` at once; consumers wait and reconnect. If Redis hangs,
the same happens after the wire's timeout, and `publish` raises `OutcomeUnknown`: the event may be there.
After a flush the groups are created again and start with the first event there is; lost events are lost, so
keep in SQL what must not be. Streams have the role `queue`, and belong on a server that does not evict.
"""

from ephemera.patterns.events._consumer import Consumer, Handler
from ephemera.patterns.events._declaration import Events
from ephemera.patterns.events._entries import DeadLetter, Delivery
from ephemera.patterns.events._group_member import DeliveryPolicy, GroupInfo, StreamInfo
from ephemera.patterns.events._once_guard import OnceGuard
from ephemera.patterns.events._outcomes import ConsumerCounts
from ephemera.patterns.events._runtime import BoundEvents

__all__ = [
    "BoundEvents",
    "Consumer",
    "ConsumerCounts",
    "DeadLetter",
    "Delivery",
    "DeliveryPolicy",
    "Events",
    "GroupInfo",
    "Handler",
    "OnceGuard",
    "StreamInfo",
]
