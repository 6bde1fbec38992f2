"""What runs where in production; everything else in this folder is generated from it.

- `cache`: a cluster of three masters with a replica each, for identity, slides and feed.
- `pages`: a single server for league, whose pages change atomically, which a cluster cannot do.
- `texts`: a single server for scripture, which requires a server that carries its identity.
- `queue`: a master, a replica and three Sentinels, for data of all five that must not be evicted. It is not a
  cluster because of Celery.
- `postgres`: the source of truth, one database per service.

Services that share a server have different Redis users. ACL rules are about patterns, so no two catalogues
have a pattern in common: all five share `queue`, where sessions, revocations and limits are.
Local caches are announced changes (CLIENT TRACKING) only on `pages` and `texts`: most servers announce the
names of all keys, whatever a user may read, so a service with tracking must have a server of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tools.release.versions import version


@dataclass(frozen=True)
class Image:
    """An image, by the name that its digest has in digests.env."""

    variable: str
    name: str
    tag: str

    @property
    def reference(self) -> str:
        """Name and tag; what runs is chosen by the digest."""
        return f"{self.name}:{self.tag}"


IMAGE = Image("EPHEMERA", "ephemera", version())
VALKEY = Image("VALKEY", "valkey/valkey", "9.0")
POSTGRES = Image("POSTGRES", "postgres", "18")
QDRANT = Image("QDRANT", "qdrant/qdrant", "v1.15.5")
MONGODB = Image("MONGODB", "mongo", "8")
PYTHON = Image("PYTHON", "python", "3.13-slim")
IMAGES = (IMAGE, VALKEY, POSTGRES, QDRANT, MONGODB, PYTHON)

PORT = 8000
ROUTED_FOR = 5
"""Seconds in which a proxy may still route requests to a pod that was deleted."""
SERVICE_GRACE, WORKER_GRACE = 30, 60
"""Seconds until SIGKILL: of a service, those above included, more than its requests get; of a worker, more
than its jobs get."""
DOMAIN = "example.com"
"""Where the public services are: identity.example.com, and so on."""
CACHE_NODES = 6
QUEUE_NODES = 2
SENTINELS = 3
TLS = "ca=/tls/ca.crt&cert=/tls/tls.crt&key=/tls/tls.key"
Cache = Literal["cache", "pages", "texts"]


@dataclass(frozen=True)
class Service:
    """A service in production."""

    name: str
    cache: Cache
    database: int = 0
    """Its database number on `queue`, which all services share."""
    replicas: int = 2
    memory: str = "512Mi"
    settings: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    """Variables of the service whose values are secrets, and the names of the secrets."""
    shared_secrets: dict[str, str] = field(default_factory=dict)
    """The same of its workers, too."""
    workers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The commands of its workers, by name; a worker of slides is called `slides-NAME`."""
    public: bool = True
    """Whether it is reachable from outside."""
    calls: tuple[str, ...] = ()
    """Other services that it calls by HTTP."""
    reaches_out: bool = False
    """Whether it and its workers may call hosts on the internet: models, mail, feeds."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The service, its workers, and its console."""
        return (self.name, *self.worker_names(), f"{self.name}-console")

    def worker_names(self) -> list[str]:
        """The names of its workers as programs."""
        return [f"{self.name}-{worker}" for worker in self.workers]


SERVICES = (
    Service(
        "identity",
        "cache",
        settings={"EPHEMERA_IDENTITY_PUBLIC_URL": f"https://identity.{DOMAIN}"},
        secrets={
            "EPHEMERA_IDENTITY_KEY_PASSWORD": "identity-keys",
            "EPHEMERA_IDENTITY_ADMIN_EMAIL": "identity-admin-email",
            "EPHEMERA_IDENTITY_ADMIN_PASSWORD": "identity-admin",
        },
        reaches_out=True,
    ),
    Service(
        "slides",
        "cache",
        memory="768Mi",
        settings={"EPHEMERA_SLIDES_WORKERS": "0", "EPHEMERA_SLIDES_QDRANT_CA": "/tls/ca.crt"},
        secrets={
            "EPHEMERA_SLIDES_ADMIN_EMAIL": "slides-admin-email",
            "EPHEMERA_SLIDES_ADMIN_PASSWORD": "slides-admin",
            "EPHEMERA_SLIDES_OPERATOR_TOKEN": "slides-operator",
        },
        shared_secrets={"EPHEMERA_SLIDES_QDRANT_KEY": "qdrant"},
        reaches_out=True,
        workers={
            "worker": ("worker", "slides", "--processes", "4"),
            "documents": ("worker", "slides", "--queue", "ingestion", "--processes", "2"),
        },
    ),
    Service(
        "scripture",
        "texts",
        database=1,
        settings={
            "EPHEMERA_SCRIPTURE_CONSUMERS": "false",
            "EPHEMERA_SCRIPTURE_JWKS": f"http://identity:{PORT}/.well-known/jwks.json",
            "EPHEMERA_SCRIPTURE_QDRANT_CA": "/tls/ca.crt",
        },
        shared_secrets={"EPHEMERA_SCRIPTURE_QDRANT_KEY": "qdrant"},
        calls=("identity",),
        reaches_out=True,
        workers={"worker": ("worker", "scripture")},
    ),
    Service(
        "feed",
        "cache",
        settings={"EPHEMERA_FEED_GRPC_ADDRESS": "0.0.0.0:50051"},
        secrets={"EPHEMERA_FEED_TOKENS": "feed-tokens"},
        workers={"worker": ("worker", "feed")},
        public=False,
        reaches_out=True,
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

USERS = ("admin", "replication", "sentinel", *(
    user for each in SERVICES for user in (each.name, f"{each.name}-console", f"{each.name}-watcher")
))  # fmt: skip
"""The users of the Redis servers; each has a password of its own."""

SQL_USERS = ("admin", *(user for each in SERVICES for user in (each.name, f"{each.name}-console")))
"""The users of PostgreSQL."""

SECRETS = (
    *(f"redis-{user}" for user in USERS),
    *(f"sql-{user}" for user in SQL_USERS),
    *(f"metrics-{each.name}" for each in SERVICES),
    *(f"console-{each.name}" for each in SERVICES),
    *("qdrant", "mongodb-admin", "mongodb-feed"),
    *sorted({secret for each in SERVICES for secret in each.secrets.values()}),
)
"""Every secret by name: created at deployment, never committed."""

SERVER_GROUPS = ("cache", "pages", "texts", "queue", "sentinel", "postgres", "qdrant", "mongodb")
"""Parts whose certificates have names, `GROUP` and `*.GROUP`."""

CLIENTS = ("cache-create", "mark", *(program for each in SERVICES for program in each.programs))
"""Parts whose certificates only identify a client."""


def cache_url(service: Service, user: str, password: str) -> str:
    """The URL of a service's cache, for a user."""
    if service.cache != "cache":
        return f"rediss://{user}:{password}@{host(service.cache, 0)}:6379?{TLS}"
    nodes = ",".join(f"{host('cache', number)}:6379" for number in range(3))
    return f"rediss+cluster://{user}:{password}@{nodes}?{TLS}"


def queue_url(service: Service, user: str, password: str) -> str:
    """The URL of a service's queue, for a user, who has the same password at the Sentinels."""
    sentinels = ",".join(f"{host('sentinel', number)}:26379" for number in range(SENTINELS))
    place = f"{user}:{password}@{sentinels}/queue/{service.database}"
    return f"rediss+sentinel://{place}?{TLS}&sentinel_user={user}&sentinel_password={password}"


def database_url(service: Service, user: str, password: str) -> str:
    """The URL of a service's database, for a user."""
    place = f"{user}:{password}@{host('postgres', 0)}:5432/{service.name}"
    return f"postgresql://{place}?sslmode=verify-full&sslrootcert=/tls/ca.crt"


_HSTS = "365d"
"""How long browsers use only TLS for a public service: its Ingress or proxy has a certificate."""


def host(group: str, number: int) -> str:
    """The host name of a server, which its certificate has."""
    return f"{group}-{number}.{group}"


def hosts(service: Service) -> tuple[str, ...]:
    """The names of a service: for other parts, for its probes, and for the public if it is public."""
    return (service.name, "localhost", "127.0.0.1", *([f"{service.name}.{DOMAIN}"] if service.public else []))


def environment(service: Service, redis: str, sql: str, metrics: str) -> dict[str, str]:
    """The environment of a service; the last three are its secrets, or references to them."""
    return {
        "EPHEMERA_URL": cache_url(service, service.name, redis),
        "EPHEMERA_QUEUE_URL": queue_url(service, service.name, redis),
        "EPHEMERA_DATABASE_URL": database_url(service, service.name, sql),
        "EPHEMERA_METRICS_TOKEN": metrics,
        "EPHEMERA_ALLOWED_HOSTS": ",".join(hosts(service)),
        **({"EPHEMERA_HSTS": _HSTS} if service.public else {}),
        **service.settings,
    }


def console_environment(service: Service, redis: str, sql: str) -> dict[str, str]:
    """The URLs of a service's console, which is another user everywhere."""
    user = f"{service.name}-console"
    return {
        "EPHEMERA_URL": cache_url(service, user, redis),
        "EPHEMERA_QUEUE_URL": queue_url(service, user, redis),
        "EPHEMERA_DATABASE_URL": database_url(service, user, sql),
    }


def marking_environment(password: str) -> dict[str, str]:
    """The URLs of the two servers that carry scripture's identity, for the administrator."""
    scripture = next(each for each in SERVICES if each.name == "scripture")
    return {
        "EPHEMERA_URL": cache_url(scripture, "admin", password),
        "EPHEMERA_QUEUE_URL": queue_url(scripture, "admin", password),
    }


QDRANT_SETTINGS = {
    "QDRANT__SERVICE__ENABLE_TLS": "true",
    "QDRANT__TLS__CERT": "/tls/tls.crt",
    "QDRANT__TLS__KEY": "/tls/tls.key",
    "QDRANT__TELEMETRY_DISABLED": "true",
}
MONGODB_OPTIONS = (
    *("--auth", "--bind_ip_all", "--tlsMode", "requireTLS", "--tlsCAFile", "/tls/ca.crt"),
    *("--tlsCertificateKeyFile", "/tls/tls.pem"),
)

MARK = (
    "ephemera mark --name scripture && "
    'EPHEMERA_URL="$EPHEMERA_QUEUE_URL" && export EPHEMERA_URL && ephemera mark --name scripture'
)
"""The command that marks both; URLs with passwords are in the environment, never on a command line."""
