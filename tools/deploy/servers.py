"""The settings and users of the Redis servers, by the functions behind `ephemera server-config` and `acl`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from ephemera.keyspace import Role
from ephemera.operations.configuration import access_rules, server_config
from tools.deploy.layout import SERVICES, Service

MEMORY = {"cache": "1gb", "pages": "64mb", "queue": "512mb"}
"""What keys and values may take on a server of each group; docs/production.md says how to find yours."""

_OPEN = """
# What follows is for servers on a network of their own: by TLS alone, for users with passwords.
bind * -::*
"""
_CLUSTER = """
cluster-enabled yes
cluster-preferred-endpoint-type hostname
cluster-node-timeout 5000
"""
_TLS = """\
# Made by `python -m tools.deploy`. TLS alone, with certificates on both sides; also between servers.
port 0
tls-port 6379
tls-cert-file /tls/tls.crt
tls-key-file /tls/tls.key
tls-ca-cert-file /tls/ca.crt
tls-auth-clients yes
tls-replication yes
tls-cluster yes
"""
_SENTINEL = """\
# Made by `python -m tools.deploy`. A Sentinel, which watches the queue and says who is its master.
bind * -::*
protected-mode no
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel monitor queue queue-0.queue 6379 2
sentinel down-after-milliseconds queue 5000
sentinel failover-timeout queue 30000
sentinel parallel-syncs queue 1
sentinel auth-user queue sentinel
"""
_INFRASTRUCTURE = (
    "user default reset off",
    "user admin reset on ~* &* +@all",
    "user replication reset on -@all +psync +replconf +ping",
    "user probe reset on nopass -@all +ping",  # who has a certificate may ask whether it lives
)
_SENTINELS = (
    "user sentinel reset on &* -@all +multi +exec +slaveof +replicaof +ping +subscribe +publish +role +info "
    "+config|rewrite +client|setname +client|kill +script|kill"
)


def files() -> dict[str, str]:
    """Every file of a server by its place."""
    return {
        "servers/cache.conf": server_config("cache", MEMORY["cache"]) + _OPEN + _CLUSTER,
        "servers/pages.conf": server_config("cache", MEMORY["pages"]) + _OPEN,
        "servers/queue.conf": server_config("queue", MEMORY["queue"]) + _OPEN,
        "servers/sentinel.conf": _SENTINEL,
        "servers/tls.conf": _TLS,
        **{f"servers/{group}.acl": users(group) for group in MEMORY},
    }


def users(group: str) -> str:
    """The users of a group of servers, without their passwords, which `start.sh` adds."""
    role: Role = "queue" if group == "queue" else "cache"
    lines = [*_INFRASTRUCTURE, *([_SENTINELS] if group == "queue" else [])]
    for service in SERVICES:
        if group in (service.cache, "queue"):
            lines += _of_service(service, role)
    return "\n".join(lines) + "\n"


def _of_service(service: Service, role: Role) -> Iterator[str]:
    catalogue = import_module(f"ephemera_services.{service.name}.keys").catalogue
    kinds = {
        service.name: ("service", "metrics"),
        f"{service.name}-console": ("service", "metrics", "monitoring"),
        f"{service.name}-watcher": ("monitoring",),
    }
    for user, purposes in kinds.items():
        yield access_rules(catalogue, user, role=role, purposes=purposes).line()
