"""The processes of the demo, and their environment: the same commands that anyone would type.

Services listen on loopback only. They trust X-Forwarded-For from this machine, so that the clients of one
machine can have many addresses. Passwords are hashed with little memory, counters are flushed and the planner
ticks within seconds, so that one sees it happen. Everything else has its default.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ephemera.embedded import LOOPBACK, free_ports
from ephemera_services.demo.console import console_environment
from ephemera_services.demo.external_servers import IDENTITY, SERVICES, service_database
from ephemera_services.demo.servers import Servers
from ephemera_services.runtime import DEMO_PASSWORD

ADMINISTRATOR = "root@example.com"
_SLIDES_WORKERS = 2  # the tour kills one

_SETTINGS: dict[str, dict[str, str]] = {
    "identity": {
        "ADMIN_EMAIL": ADMINISTRATOR,
        "ADMIN_PASSWORD": DEMO_PASSWORD,
        "PASSWORD_MEMORY": "8",
    },
    "slides": {
        "DEMO": "true",
        "PASSWORD_MEMORY": "8",
        "SECURE_COOKIES": "false",
        "COST_MICROS_PER_1K_TOKENS": "420",
        "USAGE_FLUSH": "10s",
        "VIEWS_FLUSH": "5s",
    },
    "scripture": {"IDENTITY": IDENTITY},
    "feed": {
        "DEMO": "true",
        "TICK_SECONDS": "1",
        "BUILDERS": "1",
        "PRO_NOVELTY": "3",
        "PRO_COOLDOWN": "5s",
        "FREE_NOVELTY": "8",
        "FREE_COOLDOWN": "30s",
    },
    "league": {"DEMO": "true", "PASSWORD_MEMORY": "8", "SECURE_COOKIES": "false"},
}


@dataclass(frozen=True)
class ProcessSpec:
    """One process: its name, command and environment, and how to tell that it is ready."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    url: str | None = None
    """Where it listens; it is ready when `ready_path` answers with success."""
    ready_path: str = "/readyz"
    ready_text: str = ""
    """What a process that does not listen writes to its log when it is ready."""
    module: str = "ephemera_services.demo.child"


@dataclass(frozen=True)
class ProcessPlan:
    """All processes, and the addresses of the services."""

    specs: tuple[ProcessSpec, ...]
    urls: Mapping[str, str]
    """Of the services and the console."""
    grpc: str
    """The gRPC address of feed."""
    feed_token: str = field(repr=False)
    """What clients of feed send."""
    console_password: str = field(repr=False)

    def spec(self, name: str) -> ProcessSpec:
        """The process with this name."""
        return next(spec for spec in self.specs if spec.name == name)


@dataclass(frozen=True)
class _Addresses:
    """The addresses of this demo, and the tokens of its programs."""

    urls: Mapping[str, str]
    grpc: str
    model_url: str
    metrics_token: str = field(repr=False)
    feed_token: str = field(repr=False)


def plan_processes(servers: Servers, model_url: str) -> ProcessPlan:
    """Plan the processes of a demo on these servers, on free ports."""
    *ports, grpc = free_ports(len(SERVICES) + 2)
    names = (*SERVICES, "console")
    urls = {name: f"http://{LOOPBACK}:{port}" for name, port in zip(names, ports, strict=True)}
    tokens = (secrets.token_urlsafe(24), secrets.token_urlsafe(24))
    addresses = _Addresses(urls, f"{LOOPBACK}:{grpc}", model_url, *tokens)
    environments = {service: _environment(servers, service, addresses) for service in SERVICES}
    password = secrets.token_urlsafe(9)  # new each time: the console can change things
    specs = (
        *_workers(environments),
        *(_service(service, urls[service], environments[service]) for service in SERVICES),
        ProcessSpec(
            "console",
            (),
            console_environment(servers, urls, password, addresses.metrics_token),
            urls["console"],
            ready_path="/sign-in",
            module="ephemera_services.demo.console",
        ),
    )
    specs = tuple(map(_with_named_connections, specs))
    return ProcessPlan(specs, urls, addresses.grpc, addresses.feed_token, password)


def _service(service: str, url: str, environment: Mapping[str, str]) -> ProcessSpec:
    return ProcessSpec(service, ("serve", service, "--port", url.rpartition(":")[2]), environment, url)


def _with_named_connections(spec: ProcessSpec) -> ProcessSpec:
    """The same with connections that bear its name, as `CLIENT LIST` and `pg_stat_activity` show them."""
    environment = {**spec.environment, "PGAPPNAME": spec.name}
    for name in ("EPHEMERA_URL", "EPHEMERA_QUEUE_URL"):
        url = environment.get(name)
        if url is not None and "client_name=" not in url:
            environment[name] = f"{url}{'&' if '?' in url else '?'}client_name={spec.name}"
    return replace(spec, environment=environment)


def _workers(environments: Mapping[str, Mapping[str, str]]) -> list[ProcessSpec]:
    slides = ("worker", "slides", "--processes", "1")
    names = [f"slides-worker-{number}" for number in range(1, _SLIDES_WORKERS + 1)]
    documents = ("worker", "slides", "--queue", "ingestion", "--processes", "1")
    feed = ("worker", "feed")
    return [
        *(ProcessSpec(name, slides, environments["slides"], ready_text="ready") for name in names),
        ProcessSpec("slides-documents", documents, environments["slides"], ready_text="ready"),
        ProcessSpec("feed-worker", feed, environments["feed"], ready_text='"working"'),
    ]


def _environment(servers: Servers, service: str, addresses: _Addresses) -> dict[str, str]:
    """The environment of a service and its workers, without EPHEMERA_ variables of the user's shell."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    own = {**_SETTINGS[service], **_service_addresses(servers, service, addresses)}
    return {
        **inherited,
        "EPHEMERA_URL": service_database(servers.cache_url, service),
        "EPHEMERA_QUEUE_URL": service_database(servers.queue_url, service),
        "EPHEMERA_DATABASE_URL": servers.database_url,
        "EPHEMERA_TRUSTED_PROXIES": LOOPBACK,
        "EPHEMERA_DEVELOPMENT": "true",
        "EPHEMERA_METRICS_TOKEN": addresses.metrics_token,
        **{f"EPHEMERA_{service.upper()}_{name}": value for name, value in own.items()},
    }


def _service_addresses(servers: Servers, service: str, addresses: _Addresses) -> dict[str, str]:
    """The settings of a service that are addresses of others."""
    external = servers.external
    found: dict[str, str | None] = {}
    match service:
        case "identity":
            found = {
                "PUBLIC_URL": addresses.urls["identity"],
                "EVENTS_URL": service_database(servers.queue_url, "scripture"),
                "EVENTS_IDENTITY": IDENTITY,
            }
        case "slides":
            found = {"MODEL_URL": addresses.model_url, "QDRANT_URL": external.qdrant_url}
        case "scripture":
            jwks = f"{addresses.urls['identity']}/.well-known/jwks.json"
            found = {"JWKS": jwks, "QDRANT_URL": external.qdrant_url}
        case "feed":
            found = {
                "GRPC_ADDRESS": addresses.grpc,
                "TOKENS": addresses.feed_token,
                "MONGODB_URL": external.mongodb_url,
            }
        case _:
            pass
    return {name: value for name, value in found.items() if value is not None}
