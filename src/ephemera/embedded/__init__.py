"""Real servers for tests, demonstrations and development: ready when returned, stopped with their owner.

`valkey()`, `cluster()`, `sentinel()` and `postgres()` run the servers that come in wheels, so nothing has to
be installed and root is not needed.
"""

from ephemera.embedded._cluster import Cluster, cluster
from ephemera.embedded._ports import LOOPBACK, free_ports, start_on_free_ports
from ephemera.embedded._postgresql import Postgres, postgres
from ephemera.embedded._resp import send_command
from ephemera.embedded._sentinel import Sentinel, sentinel
from ephemera.embedded._valkey import BINARY_VARIABLE, Valkey, valkey, valkey_binary

__all__ = [
    "BINARY_VARIABLE",
    "LOOPBACK",
    "Cluster",
    "Postgres",
    "Sentinel",
    "Valkey",
    "cluster",
    "free_ports",
    "postgres",
    "send_command",
    "sentinel",
    "start_on_free_ports",
    "valkey",
    "valkey_binary",
]
