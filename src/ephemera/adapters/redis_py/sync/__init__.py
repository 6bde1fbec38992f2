"""`redis.Redis` with a faster way to the server. Needs the extra `redis-py`.

    from ephemera.adapters.redis_py.sync import Redis       # in place of: from redis import Redis

or, for libraries that import `redis` themselves, once at the start of the program:

    from ephemera.adapters.redis_py.sync import install
    install()

*What is the same.* Everything that can be seen: arguments, URLs, commands, replies, response callbacks,
errors, retries, pipelines, pub/sub, locks, scripts, events, metrics, and the connection pool with its limits.
`Redis` is a subclass of `redis.Redis`, and connections are redis-py's own. redis-py's test suite passes as it
does without (docs/proof/certified.md).

*What is different.* A command is packed, sent, received and parsed in one function. The kernel enforces the
timeout of a socket, where Python would poll before each send and receive. A connection that answered less
than half a second ago is not polled again when it leaves the pool. The replies to a pipeline are read in one
go. What needs redis-py's own way gets it: client-side caching, a single-connection client, commands of two
words, OpenTelemetry metrics, connection classes of your own, Sentinel, and `redis.RedisCluster`.

*Threads, forks, gevent.* A connection belongs to one thread while it is used. A child process opens its own
connections, even when it was forked while other threads made calls. Under gevent its sockets are used.

*When a call fails*, its connection is closed, so a late reply reaches no other call. Whether the command is
repeated is decided by redis-py's `retry`. The same holds when a signal handler raises.
"""

from ephemera.adapters.redis_py.sync._client import Pipeline, Redis, install

__all__ = ["Pipeline", "Redis", "install"]
