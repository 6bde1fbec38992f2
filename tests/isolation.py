"""Test files do not see each other's keys: the shared servers are emptied before each file.

Within a file each test has keys of its own (the fixture `key`). A test that looks at a whole server, such as
an audit, therefore sees only keys that its own file wrote. Nothing that lives longer than a file may keep
data on a shared server.
"""

from __future__ import annotations

from ephemera.embedded import Cluster, Sentinel, Valkey
from ephemera.errors import ServerError
from tests.wire.debian_redis import DebianRedis

Shared = Valkey | DebianRedis | Cluster | Sentinel

_shared: list[Shared] = []


def share(server: Shared) -> None:
    """Empty this server before each further file."""
    _shared.append(server)


def empty_shared_servers() -> None:
    """Delete every key of every database on the shared servers."""
    for server in _shared:
        nodes = server.nodes if isinstance(server, Cluster | Sentinel) else [server]
        for node in nodes:
            try:
                node.ask("FLUSHALL")
            except ServerError as error:
                if error.code != "READONLY":  # a replica, which its master empties
                    raise
