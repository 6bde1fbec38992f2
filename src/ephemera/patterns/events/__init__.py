"""Typed events on streams, delivered to every consumer group at least once.

    USERS: Events[Registered | Removed] = Events(
        catalogue, "gl:events:users", Registered | Removed, purpose="Accounts created and removed")
    await store[USERS].publish(Registered(user_id="7"))

    async def welcome(event: Registered | Removed, delivery: Delivery) -> None: ...
    async with store[USERS].consume("mailer", welcome):    # consumes until the block ends

*Keys.* The stream has no lifetime; it is trimmed up to the first event that some group has not handled, or
that is younger than its `retention`. `...:dead` holds the newest 100,000 dead letters, `...:paused` the
paused groups, `...:lanes` the unfinished events of a stream with `order_by`, and `...:bell:{reader}` ends a
wait of one process. All share a cluster slot by a hash tag, and all but the first two expire.

*Atomicity.* One script each: `publish`; every 500 events of `publish_many`; claiming; writing a dead letter
and acknowledging its event; replaying; pausing and trying; reading and acknowledging in order; trimming;
removing a consumer that has nothing pending. Only the consumer that has a pending entry changes it.

*Delivery.* A consumer handles ten events at a time by default, each at least once. An event is acknowledged
when its handler has returned. If the handler raises, the consumer's `on_error` decides by exception class: a
retry with increasing delays, a dead letter at once, dropping it, or a pause of the whole group while a
dependency is down. After the last delivery it becomes a dead letter with its error. An event that cannot be
decoded becomes one at once, and delays no other. Half of the handlers are reserved for retries and takeovers
while there are any. `OnceGuard` makes delivery exactly once for effects in SQL.

*Order.* Handlers run concurrently, so the stream's order is the order in which they start. With `order_by`,
events with the same value of a field are handled one after another by each group, by whichever consumer; the
next one starts when the one before it was acknowledged or became a dead letter.

*Connections.* While there is nothing to do, the consumers of a process wait on two connections, whatever
their number: the first in an XREADGROUP of its own, all others together in one XREAD. XREADGROUP names one
group and one consumer, so consumers cannot share it. The one that has it gets an event in one round trip, and
wakes no other process; so the usual service, with one consumer, does not pay for sharing.

*When a consumer dies.* Its pending events are claimed after a lease, by the next consumer that checks, one at
a time: one of them may have killed it.

*When Redis is down.* `publish` raises `Unavailable` at once; consumers wait and reconnect. If Redis hangs,
the same happens after the wire's timeout, and `publish` raises `OutcomeUnknown`: the event may be there.
After a flush the groups are created again and start with the first event there is. Keep events that must
not be lost in SQL. Streams have the role `queue`, and belong on a server that does not evict.
"""

from ephemera.patterns.events._consumer import Consumer, Handler
from ephemera.patterns.events._declaration import Events
from ephemera.patterns.events._entries import DeadLetter, Delivery, OnceGuard
from ephemera.patterns.events._group_info import ConsumerCounts, GroupInfo, StreamInfo
from ephemera.patterns.events._group_member import IdleTime
from ephemera.patterns.events._policy import DeliveryPolicy, ErrorAction, ErrorActions, Pause, Redeliver
from ephemera.patterns.events._runtime import BoundEvents, ReplayedEvents

__all__ = [
    "BoundEvents",
    "Consumer",
    "ConsumerCounts",
    "DeadLetter",
    "Delivery",
    "DeliveryPolicy",
    "ErrorAction",
    "ErrorActions",
    "Events",
    "GroupInfo",
    "Handler",
    "IdleTime",
    "OnceGuard",
    "Pause",
    "Redeliver",
    "ReplayedEvents",
    "StreamInfo",
]
