"""Fan-out: who is connected where, and messages to a user's connections on whatever process they are.

    NOTES = Fanout(catalogue, "ws_connections:{user_id}", Note, channel="pubsub:notifications")

    async with store[NOTES].connect(user_id="u1") as connection:        # in the process with the WebSocket
        async for message in connection: ...
    reached = await store[NOTES].push(Note("..."), user_id="u1")        # in any process

Keys: a sorted set for each user, `<server>:<connection>` by deadline, which lives to its last deadline;
`channel` for messages to everybody, `channel:{server_id}` for those to one process.
Lifetimes: each connection has a deadline of its own (`lifetime`, 300 s), which its process renews every third
of it, all connections in few trips, by one task. So what a dead process leaves lapses, whoever else is there.
Atomic: finding a user's processes, sending to them and forgetting what has lapsed are one script, one trip.
Promised: a message reaches each connection at most once, in the order it was sent from one process. It is
kept by nobody: what must not be lost is in SQL, and the message says that there is news. A connection that
may have missed messages (its process lost the subscription, or it was not listed for a while) is told by
`MISSED`; one that is `backlog` messages behind is dropped with `SlowConsumer`, and costs the others nothing.
Down or hung: `push` and `broadcast` raise `ConnectionFailed`; connections stay, and are entered again within
seconds of the server's return. Evicted or emptied: the same within a third of the lifetime.
"""

from ephemera.patterns.fanout._connections import MISSED, Connection
from ephemera.patterns.fanout._declaration import Fanout
from ephemera.patterns.fanout._runtime import BoundFanout, Presence

__all__ = [
    "MISSED",
    "BoundFanout",
    "Connection",
    "Fanout",
    "Presence",
]
