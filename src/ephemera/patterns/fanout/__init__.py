"""Fan-out: which process each user is connected to, and messages to a user's connections on any process.

    NOTES = Fanout(catalogue, "ws_connections:{user_id}", Note, channel="pubsub:notifications")

    async with store[NOTES].connect(user_id="u1") as connection:        # in the process with the WebSocket
        async for message in connection: ...
    reached = await store[NOTES].push(Note("..."), user_id="u1")        # in any process

*Keys.* A sorted set for each user holds `<server>:<connection>` by deadline, and expires with its last
deadline. `channel` carries messages to all connections, `channel:{server_id}` those to one process.

*Lifetimes.* Each connection has a deadline of its own (`lifetime`, 300 s). One task of its process renews all
deadlines every third of that, in a few round trips. So the connections of a dead process expire, whatever
else a user is connected to.

*Atomicity.* Finding a user's processes, publishing to them and removing expired connections is one script and
one round trip.

*Guarantees.* A message reaches each connection at most once, in the order in which one process sent it. It is
not stored: what must not be lost is in SQL, and the message says that there is news. A connection that may
have missed messages (its process lost the subscription, or it was not listed for a while) gets `MISSED`. One
that is `backlog` messages behind is dropped with `SlowConsumer`, and does not delay the others.

*When Redis is down or hung.* `push` and `broadcast` raise `ConnectionFailed`. Connections stay open, and are
listed again within seconds of the server's return; after an eviction or a flush, within a third of the
lifetime.
"""

from ephemera.patterns.fanout._connections import MISSED, FanoutConnection
from ephemera.patterns.fanout._declaration import BoundFanout, Fanout, Presence

__all__ = [
    "MISSED",
    "BoundFanout",
    "Fanout",
    "FanoutConnection",
    "Presence",
]
