"""Django Channels: a channel layer with groups, on a cluster as well. Needs the extra `channels`.

    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "ephemera.adapters.channels.RedisChannelLayer",
            "CONFIG": {"hosts": ["redis://localhost"]},
        }
    }

*Keys.* `asgiNAME` is the queue of a channel, or of all channels of a process, a sorted set of messages by
time; `asgi:group:NAME` has the channels of a group. Keys and messages are those of channels_redis: during a
deployment processes with either layer reach each other.

*Atomicity.* Sending is one script: it drops expired messages, refuses a full channel, and sets the lifetime.
Messages of a channel stay in order. Delivery is at most once, as Channels has it.

*Cost.* One round trip to send, two to send to a group of any size, plus one script for each process that has
members; all that is sent at once shares writes. All consumers of a process receive on one connection.

*Loops and forks.* Each event loop has its own connections, which its end closes. A forked child is a process
of its own.

*When Redis is down.* Sending raises `ConnectionFailed`. Consumers keep waiting, and receive again when the
server is back; what was sent in the meantime is lost.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("channels") is None:
    raise MissingExtra("ephemera.adapters.channels needs Django Channels", "channels", "channels")

from ephemera.adapters.channels._layer import RedisChannelLayer

__all__ = ["RedisChannelLayer"]
