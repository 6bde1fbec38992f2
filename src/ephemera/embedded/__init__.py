"""Real servers for tests, demonstrations and development: ready when returned, gone with their owner.

`valkey()`, `cluster()`, `sentinel()` and `postgres()` run the servers that come in wheels, so that
nothing has to be installed and nobody has to be root.
"""

from ephemera.embedded._cluster import Cluster, cluster
from ephemera.embedded._postgresql import Postgres, postgres
from ephemera.embedded._sentinel import Sentinel, sentinel
from ephemera.embedded._valkey import Valkey, valkey

__all__ = ["Cluster", "Postgres", "Sentinel", "Valkey", "cluster", "postgres", "sentinel", "valkey"]
