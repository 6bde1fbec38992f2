"""What runs where in production; everything else in this folder is generated from it.

- `cache`: a cluster of three masters with a replica each, for identity, slides and feed.
- `pages`: a single server for two services that cannot use a cluster: league, whose pages change atomically,
  and scripture, in a separate database that carries its identity.
- `queue`: a master, a replica and three Sentinels, for data of all five that must not be evicted. It is not a
  cluster because of Celery.
- `postgres`: the source of truth, one database per service.

Services that share a server have different Redis users. Where two catalogues have the same pattern, as slides
and league have `session:{session_id}`, they are on different servers, because ACL rules are about patterns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

IMAGE = "ephemera:0.1.0"
VALKEY = "valkey/valkey:9.0"
POSTGRES = "postgres:18"
QDRANT = "qdrant/qdrant:v1.15.5"
MONGODB = "mongo:8"

PORT = 8000
CACHE_NODES = 6
QUEUE_NODES = 2
SENTINELS = 3
TLS = "ca=/tls/ca.crt&cert=/tls/tls.crt&key=/tls/tls.key"
Cache = Literal["cache", "pages"]


@dataclass(frozen=True)
class Service:
    """A service in production."""

    name: str
    cache: Cache
    database: int = 0
    """Its database number on `pages` and `queue`, which several services share."""
    replicas: int = 2
    memory: str = "512Mi"
    settings: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    """Variables whose values are secrets, and the names of the secrets."""
    worker: tuple[str, ...] = ()
    """The command of its worker, if it has one."""
    public: bool = True
    """Whether it is reachable from outside."""


SERVICES = (
    Service(
        "identity",
        "cache",
        secrets={
            "EPHEMERA_IDENTITY_KEY_PASSWORD": "identity-keys",
            "EPHEMERA_IDENTITY_ADMIN_EMAIL": "identity-admin-email",
            "EPHEMERA_IDENTITY_ADMIN_PASSWORD": "identity-admin",
        },
    ),
    Service(
        "slides",
        "cache",
        memory="768Mi",
        settings={"EPHEMERA_SLIDES_WORKERS": "0"},
        secrets={
            "EPHEMERA_SLIDES_ADMIN_EMAIL": "slides-admin-email",
            "EPHEMERA_SLIDES_ADMIN_PASSWORD": "slides-admin",
        },
        worker=("worker", "slides", "--processes", "4"),
    ),
    Service(
        "scripture",
        "pages",
        database=1,
        settings={
            "EPHEMERA_SCRIPTURE_CONSUMERS": "false",
            "EPHEMERA_SCRIPTURE_JWKS": f"http://identity:{PORT}/.well-known/jwks.json",
        },
        worker=("worker", "scripture"),
    ),
    Service(
        "feed",
        "cache",
        settings={"EPHEMERA_FEED_GRPC_ADDRESS": "0.0.0.0:50051"},
        worker=("worker", "feed"),
        public=False,
    ),
    Service(
        "league",
        "pages",
        settings={"EPHEMERA_LEAGUE_REDIS_MEGABYTES": "64"},
        secrets={
            "EPHEMERA_LEAGUE_ADMIN_NAME": "league-admin-name",
            "EPHEMERA_LEAGUE_ADMIN_PASSWORD": "league-admin",
            "EPHEMERA_LEAGUE_CACHE_PREWARM_TOKEN": "league-prewarm",
        },
    ),
)

USERS = ("admin", "replication", "sentinel", "console", "watcher", *(each.name for each in SERVICES))
"""The users of the Redis servers; the services share the passwords of `console` and `watcher`."""

SECRETS = (
    *(f"redis-{user}" for user in USERS),
    *(f"sql-{each.name}" for each in SERVICES),
    "sql-admin",
    "metrics",
    "console",
    *sorted({secret for each in SERVICES for secret in each.secrets.values()}),
)
"""Every secret by name: created at deployment, never committed."""


def cache_url(service: Service, user: str, password: str) -> str:
    """The URL of a service's cache, for a user."""
    if service.cache == "pages":
        return f"rediss://{user}:{password}@{host('pages', 0)}:6379/{service.database}?{TLS}"
    nodes = ",".join(f"{host('cache', number)}:6379" for number in range(3))
    return f"rediss+cluster://{user}:{password}@{nodes}?{TLS}"


def queue_url(service: Service, user: str, password: str) -> str:
    """The URL of a service's queue, for a user."""
    sentinels = ",".join(f"{host('sentinel', number)}:26379" for number in range(SENTINELS))
    return f"rediss+sentinel://{user}:{password}@{sentinels}/queue/{service.database}?{TLS}"


def database_url(service: Service, password: str) -> str:
    """The URL of a service's database."""
    place = f"{service.name}:{password}@{host('postgres', 0)}:5432/{service.name}"
    return f"postgresql://{place}?sslmode=verify-full&sslrootcert=/tls/ca.crt"


def host(group: str, number: int) -> str:
    """The host name of a server, which its certificate has."""
    return f"{group}-{number}.{group}"


def environment(service: Service, redis: str, sql: str, metrics: str) -> dict[str, str]:
    """The environment of a service; `secret` formats the reference to a secret."""
    return {
        "EPHEMERA_URL": cache_url(service, service.name, redis),
        "EPHEMERA_QUEUE_URL": queue_url(service, service.name, redis),
        "EPHEMERA_DATABASE_URL": database_url(service, sql),
        "EPHEMERA_METRICS_TOKEN": metrics,
        **service.settings,
    }
