"""Events: what happened, told to every group that wants to know, at least once, in typed form.

    USERS: Events[Registered | Removed] = Events(
        catalogue, "gl:events:users", Registered | Removed, purpose="Accounts that came and went")
    await store[USERS].publish(Registered(user_id="7"))

    async def welcome(event: Registered | Removed, delivery: Delivery) -> None: ...
    async with store[USERS].consume("mailer", welcome):    # works until the block ends

Keys: the stream, without a lifetime, trimmed behind the first event that some group has not handled;
`...:dead`, the dead letters, the newest 100,000. They share a cluster slot by a hash tag.
Atomic: `publish`; each 500 of `publish_many`; making a dead letter and acknowledging its event; replaying
one; trimming; removing a consumer that has nothing pending. Only the member that has an entry changes it.
Handled: ten at a time unless said, each at least once: acknowledged when its handler returned, tried again
when it raised, after a second, two, four, and so on to a lease; after `deliveries` a dead letter with its
error. An event that cannot be read is one at once, and holds up nobody. Handlers run side by side, so the
stream's order is that of their beginnings. `OnceGuard` makes it exactly once for effects in SQL.
Died: what a consumer had is taken over after a lease of silence, by whichever looks first.
Down: `publish` raises `Unavailable` at once, consumers wait and come back by themselves. Hung: the same after
the wire's timeout, `OutcomeUnknown` from `publish`: the event may be there. Emptied: groups are made again
and begin with what is there; events that were lost with the server are lost, so SQL keeps what must not be.
Evicting: streams have the role `queue`, and belong on a server that does not evict.
"""

from ephemera.patterns.events._consumer import Consumer
from ephemera.patterns.events._declaration import Events
from ephemera.patterns.events._entries import DeadLetter, Delivery
from ephemera.patterns.events._groups import GroupReading, StreamReading
from ephemera.patterns.events._once import OnceGuard
from ephemera.patterns.events._runtime import BoundEvents

__all__ = [
    "BoundEvents",
    "Consumer",
    "DeadLetter",
    "Delivery",
    "Events",
    "GroupReading",
    "OnceGuard",
    "StreamReading",
]
