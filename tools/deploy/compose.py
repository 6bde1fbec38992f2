"""`compose.yaml`: all of it on one machine, for a trial of production or a small one."""

from __future__ import annotations

from typing import Any

import yaml  # type: ignore[import-untyped]

from tools.deploy.layout import (
    CACHE_NODES,
    IMAGE,
    MONGODB,
    PORT,
    POSTGRES,
    QDRANT,
    QUEUE_NODES,
    SENTINELS,
    SERVICES,
    USERS,
    VALKEY,
    Service,
    cache_url,
    database_url,
    environment,
    host,
    queue_url,
)

HEADER = """\
# Made by `python -m tools.deploy`; do not edit. deploy/README.md says how to use it.
# Secrets come from the environment (an .env file that is not committed), certificates from ./tls, and
# what else services are told (their proxies, a Qdrant, ...) from settings.env, if there is one.
"""
_HARDENED: dict[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "restart": "unless-stopped",
    "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}},
}
_CLI = "valkey-cli --tls --cacert /tls/ca.crt --cert /tls/tls.crt --key /tls/tls.key"
_AS_PROBE = " --no-auth-warning --user probe --pass x"


def files() -> dict[str, str]:
    """The file."""
    return {"compose.yaml": HEADER + yaml.safe_dump(document(), sort_keys=False, width=110)}


def document() -> dict[str, Any]:
    """All of it."""
    services: dict[str, Any] = {}
    for number in range(CACHE_NODES):
        services[f"cache-{number}"] = _valkey("cache", number, memory="1536m")
    services["cache-create"] = _cluster_creation()
    services["pages-0"] = _valkey("pages", 0, memory="192m")
    for number in range(QUEUE_NODES):
        services[f"queue-{number}"] = _valkey("queue", number, memory="1g")
    for number in range(SENTINELS):
        services[f"sentinel-{number}"] = _valkey("sentinel", number, memory="128m", port=26379)
    services["mark"] = _marking()
    services["postgres-0"] = _postgres()
    for each in SERVICES:
        services[each.name] = _service(each)
        if each.worker:
            services[f"{each.name}-worker"] = _worker(each)
    for place, each in enumerate(SERVICES):
        services[f"{each.name}-console"] = _console(each, 8085 + place)
    services |= _optional()
    stored = [name for name in services if name.startswith(("cache-", "pages-", "queue-", "sentinel-"))]
    stored.remove("cache-create")
    return {
        "name": "ephemera",
        "services": services,
        "networks": {"inside": {"internal": True}, "outside": {}},
        "volumes": {name: {} for name in [*stored, "postgres", "qdrant", "mongodb"]},
        "secrets": {
            **{f"redis-{user}": {"environment": _variable(f"redis-{user}")} for user in USERS},
            **{f"sql-{each.name}": {"environment": _variable(f"sql-{each.name}")} for each in SERVICES},
            "sql-admin": {"environment": _variable("sql-admin")},
        },
    }


def _variable(secret: str) -> str:
    return "EPHEMERA_SECRET_" + secret.upper().replace("-", "_")


def _given(secret: str) -> str:
    """A secret's value, which must be there."""
    return f"${{{_variable(secret)}:?}}"


def _limits(memory: str, cpus: str = "1.0") -> dict[str, Any]:
    return {"deploy": {"resources": {"limits": {"memory": memory, "cpus": cpus}}}}


def _valkey(group: str, number: int, *, memory: str, port: int = 6379) -> dict[str, Any]:
    name = f"{group}-{number}"
    more = ["--tls-port", str(port)] if group == "sentinel" else []
    who = "" if group == "sentinel" else _AS_PROBE
    return {
        "image": VALKEY,
        "user": "999:999",
        "entrypoint": ["/bin/sh", "/servers/start.sh", group, *more],
        "environment": {
            "SETTINGS": "/servers",
            "SECRETS": "/run/secrets",
            "DATA": "/data",
            "ANNOUNCE": host(group, number),
            "FIRST": f"{host('queue', 0)} 6379",
        },
        "secrets": [f"redis-{user}" for user in USERS],
        "volumes": ["./servers:/servers:ro", "./tls:/tls:ro", f"{name}:/data"],
        "networks": {"inside": {"aliases": [host(group, number)]}},
        "healthcheck": {
            "test": ["CMD-SHELL", f"{_CLI}{who} -p {port} ping | grep -q PONG"],
            "interval": "5s",
            "timeout": "3s",
            "retries": 5,
        },
        "stop_grace_period": "30s",
        **_limits(memory),
        **_HARDENED,
    }


def _cluster_creation() -> dict[str, Any]:
    nodes = " ".join(f"{host('cache', number)}:6379" for number in range(CACHE_NODES))
    create = (
        "REDISCLI_AUTH=$$(cat /run/secrets/redis-admin) && export REDISCLI_AUTH && "
        f"cli='{_CLI} --user admin' && "
        f"{{ $$cli -h {host('cache', 0)} cluster info | grep -q cluster_state:ok || "
        f"$$cli --cluster create {nodes} --cluster-replicas 1 --cluster-yes; }}"
    )
    return {
        "image": VALKEY,
        "user": "999:999",
        "entrypoint": ["/bin/sh", "-c", create],
        "secrets": ["redis-admin"],
        "volumes": ["./tls:/tls:ro"],
        "networks": ["inside"],
        "depends_on": {f"cache-{number}": {"condition": "service_healthy"} for number in range(CACHE_NODES)},
        **_limits("128m"),
        **_HARDENED,
        "restart": "on-failure",
    }


def _marking() -> dict[str, Any]:
    """Scripture wants databases that are marked as its own."""
    scripture = next(each for each in SERVICES if each.name == "scripture")
    secret = _given("redis-admin")
    mark = "ephemera mark --name scripture --url"
    urls = (cache_url(scripture, "admin", secret), queue_url(scripture, "admin", secret))
    return {
        "image": IMAGE,
        "entrypoint": ["/bin/sh", "-c", " && ".join(f"{mark} '{url}'" for url in urls)],
        "volumes": ["./tls:/tls:ro"],
        "tmpfs": ["/tmp"],  # noqa: S108 - a container's own
        "networks": ["inside"],
        "depends_on": {
            name: {"condition": "service_healthy"}
            for name in ("pages-0", "queue-0", "sentinel-0", "sentinel-1")
        },
        **_limits("256m"),
        **_HARDENED,
        "restart": "on-failure",
    }


def _postgres() -> dict[str, Any]:
    secrets = ["sql-admin", *(f"sql-{each.name}" for each in SERVICES)]
    return {
        "image": POSTGRES,
        "user": "999:999",
        "command": ["-c", "config_file=/postgres/postgresql.conf"],
        "environment": {
            "POSTGRES_PASSWORD_FILE": "/run/secrets/sql-admin",
            "POSTGRES_INITDB_ARGS": "--auth-host=scram-sha-256 --auth-local=scram-sha-256",
            "DATABASES": " ".join(each.name for each in SERVICES),
        },
        "secrets": secrets,
        "volumes": [
            "./postgres:/postgres:ro",
            "./postgres/databases.sh:/docker-entrypoint-initdb.d/databases.sh:ro",
            "./tls:/tls:ro",
            "postgres:/var/lib/postgresql",
        ],
        "tmpfs": ["/tmp", "/var/run/postgresql"],  # noqa: S108
        "shm_size": "256m",
        "networks": {"inside": {"aliases": [host("postgres", 0)]}},
        "healthcheck": {
            "test": ["CMD", "pg_isready", "-q", "-h", "127.0.0.1"],
            "interval": "5s",
            "timeout": "3s",
            "retries": 10,
        },
        "stop_grace_period": "60s",
        **_limits("2g", "2.0"),
        **_HARDENED,
    }


_SETTINGS = [{"path": "settings.env", "required": False}]
_NEEDED = ("cache-create", "mark"), ("pages-0", "queue-0", "sentinel-0", "sentinel-1", "postgres-0")


def _ours(service: Service, command: list[str], memory: str) -> dict[str, Any]:
    done, healthy = _NEEDED
    return {
        "image": IMAGE,
        "build": {"context": "..", "dockerfile": "deploy/Dockerfile"},
        "command": command,
        "volumes": ["./tls:/tls:ro"],
        "tmpfs": ["/tmp"],  # noqa: S108
        "depends_on": {
            **{name: {"condition": "service_completed_successfully"} for name in done},
            **{name: {"condition": "service_healthy"} for name in healthy},
        },
        **_limits(memory.replace("Mi", "m")),
        **_HARDENED,
        "environment": environment(
            service, _given(f"redis-{service.name}"), _given(f"sql-{service.name}"), _given("metrics")
        ),
    }


def _service(service: Service) -> dict[str, Any]:
    made = _ours(service, ["serve", service.name, "--host", "0.0.0.0", "--port", str(PORT)], service.memory)  # noqa: S104
    made["environment"] |= {name: _given(secret) for name, secret in service.secrets.items()}
    made["env_file"] = _SETTINGS
    asked = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/healthz', timeout=2)"
    made["healthcheck"] = {
        "test": ["CMD", "python", "-c", asked],
        "interval": "10s",
        "timeout": "5s",
        "retries": 3,
        "start_period": "30s",
    }
    made["networks"] = ["inside", "outside"] if service.public else ["inside"]
    if service.public:
        made["ports"] = [
            {"target": PORT, "published": str(8001 + SERVICES.index(service)), "host_ip": "127.0.0.1"}
        ]
    return made


def _worker(service: Service) -> dict[str, Any]:
    made = _ours(service, list(service.worker), "1024Mi")
    return {**made, "env_file": _SETTINGS, "networks": ["inside"], "stop_grace_period": "60s"}


def _console(service: Service, port: int) -> dict[str, Any]:
    user, redis = f"{service.name}-console", _given("redis-console")
    words = ["console", "--catalogue", service.name, "--host", "0.0.0.0", "--port", "8085"]  # noqa: S104
    words += ["--metrics-url", f"http://{service.name}:{PORT}/metrics"]
    made = _ours(service, [*words, "--public-url", f"http://127.0.0.1:{port}"], "512Mi")
    return {
        **made,
        "profiles": ["console"],
        "environment": {
            "EPHEMERA_URL": cache_url(service, user, redis),
            "EPHEMERA_QUEUE_URL": queue_url(service, user, redis),
            "EPHEMERA_DATABASE_URL": database_url(service, _given(f"sql-{service.name}")),
            "EPHEMERA_CONSOLE_PASSWORD": _given("console"),
            "EPHEMERA_METRICS_TOKEN": _given("metrics"),
        },
        "networks": ["inside", "outside"],
        "ports": [{"target": 8085, "published": str(port), "host_ip": "127.0.0.1"}],
    }


def _optional() -> dict[str, Any]:
    """Vectors for many processes, and feeds in MongoDB: only where their profile is asked for."""
    return {
        "qdrant": {
            "image": QDRANT,
            "user": "1000:1000",
            "profiles": ["qdrant"],
            "volumes": ["qdrant:/qdrant/storage"],
            "tmpfs": ["/qdrant/snapshots"],
            "networks": ["inside"],
            **_limits("1g"),
            **_HARDENED,
        },
        "mongodb": {
            "image": MONGODB,
            "user": "999:999",
            "profiles": ["mongodb"],
            "volumes": ["mongodb:/data/db"],
            "tmpfs": ["/tmp"],  # noqa: S108
            "networks": ["inside"],
            **_limits("1g"),
            **_HARDENED,
        },
    }
