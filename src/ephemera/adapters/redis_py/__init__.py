"""redis-py: a drop-in for `redis.asyncio` with one connection for all tasks. Needs the extra `redis-py`.

    from ephemera.adapters.redis_py import Redis     # in place of: from redis.asyncio import Redis

or, for libraries that use redis-py and cannot be changed,

    ephemera.adapters.redis_py.install()

*What is shared.* Commands, pipelines and MULTI blocks of all tasks go over one connection for each pool and
event loop (on a cluster, for each node), and those issued in the same tick are batched into one or a few
writes. The commands of a pipeline are sent without any other between them. Everything above the connection is
redis-py's own code: commands, response callbacks, scripts, locks, the retry policy, the slot map of a
cluster.

*What is not.* WATCH, blocking commands, pub/sub, MONITOR, CLIENT, `client()` and `single_connection_client`
need a connection of their own, and get one from redis-py's own pool, which is `connection_pool` as always. So
does a client with a setting that the wire does not serve: a pool or connection class of your own, Sentinel, a
`redis_connect_func`, streaming credentials, or redis-py's OpenTelemetry metrics. After SELECT or READONLY a
pool uses redis-py's connections alone.

*Cancellation.* A cancelled caller disturbs no other. Commands that it has sent are executed.

*When Redis is down.* A command that was not executed runs on a connection of redis-py's, which connects,
retries and raises as its `Retry` says; so errors and their classes are redis-py's. As in redis-py, a retry
policy also repeats commands that may have been executed; with `Retry(NoBackoff(), 0)` none is. After
`socket_timeout` seconds without an answer every command in flight fails with `redis.TimeoutError`.

*Event loops and processes.* A client may be used from several event loops, one after the other or in threads:
each has a connection, which is closed when the loop's tasks are cancelled, as `asyncio.run` does at its end.
A forked child opens its own.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("redis") is None:
    raise MissingExtra("ephemera.adapters.redis_py needs redis-py", "redis-py", "redis")

from ephemera.adapters.redis_py._client import Redis
from ephemera.adapters.redis_py._cluster import RedisCluster
from ephemera.adapters.redis_py._install import install

__all__ = ["Redis", "RedisCluster", "install"]
