"""Which processes a demonstration has, and what each is told: the commands are those that anybody would type.

Services listen on loopback alone. They trust what it says about addresses, so that the visitors of one
machine can be many; passwords are checked with little memory, counts are flushed and the planner looks within
seconds, so that one sees it happen. Otherwise everything is as it comes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from ephemera.embedded import LOOPBACK, free_ports
from ephemera_services.demo.claims import MARK
from ephemera_services.demo.console import console_environment
from ephemera_services.demo.flag_errors import SYSTEMS, database_of
from ephemera_services.demo.servers import Servers
from ephemera_services.runtime import DEMO_PASSWORD

ADMINISTRATOR = "root@example.com"
_WORKERS = 2  # of slides: one may be killed

_TOLD: dict[str, dict[str, str]] = {
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
    "scripture": {"IDENTITY": MARK},
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
class Part:
    """One process: what it is called, its command, its environment, and when it is ready."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    url: str | None = None
    """Where it listens; ready when `/readyz` says so, or the path in `ready_at`."""
    ready_at: str = "/readyz"
    says: str = ""
    """What a process that listens nowhere has in its log when it is ready."""
    module: str = "ephemera_services.demo.child"


@dataclass(frozen=True)
class Cast:
    """All processes, and where the services are."""

    parts: tuple[Part, ...]
    urls: Mapping[str, str]
    """Of the services, and of the console."""
    grpc: str
    """Where the feed listens for gRPC."""
    console_password: str = field(repr=False)

    def part(self, name: str) -> Part:
        """The process of this name."""
        return next(part for part in self.parts if part.name == name)


@dataclass(frozen=True)
class _Addresses:
    """Where everything of this demonstration is, and the token that opens its metrics."""

    urls: Mapping[str, str]
    grpc: str
    model_url: str
    metrics_token: str = field(repr=False)


def cast(servers: Servers, model_url: str) -> Cast:
    """The processes of a demonstration on these servers, on free ports."""
    *ports, grpc = free_ports(len(SYSTEMS) + 2)
    urls = {
        name: f"http://{LOOPBACK}:{port}" for name, port in zip((*SYSTEMS, "console"), ports, strict=True)
    }
    at = _Addresses(urls, f"{LOOPBACK}:{grpc}", model_url, secrets.token_urlsafe(24))
    told = {system: _environment(servers, system, at) for system in SYSTEMS}
    password = secrets.token_urlsafe(9)  # new each time: who can open the console may change things
    parts = (
        *_workers(told),
        *(_service(system, urls[system], told[system]) for system in SYSTEMS),
        Part(
            "console",
            (),
            console_environment(servers, urls, password, at.metrics_token),
            urls["console"],
            ready_at="/sign-in",
            module="ephemera_services.demo.console",
        ),
    )
    return Cast(parts, urls, at.grpc, password)


def _service(system: str, url: str, told: Mapping[str, str]) -> Part:
    return Part(system, ("serve", system, "--port", url.rpartition(":")[2]), told, url)


def _workers(told: Mapping[str, Mapping[str, str]]) -> list[Part]:
    slides = ("worker", "slides", "--processes", "1")
    names = [f"slides-worker-{number}" for number in range(1, _WORKERS + 1)]
    return [
        *(Part(name, slides, told["slides"], says="ready") for name in names),
        Part("feed-worker", ("worker", "feed"), told["feed"], says='"working"'),
    ]


def _environment(servers: Servers, system: str, at: _Addresses) -> dict[str, str]:
    """What a service and its workers are told; nothing of ours that the user's shell happens to have."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    own = {**_TOLD[system], **_elsewhere(servers, system, at)}
    return {
        **usual,
        "EPHEMERA_URL": database_of(servers.cache_url, system),
        "EPHEMERA_QUEUE_URL": database_of(servers.queue_url, system),
        "EPHEMERA_DATABASE_URL": servers.database_url,
        "EPHEMERA_TRUSTED_PROXIES": LOOPBACK,
        "EPHEMERA_METRICS_TOKEN": at.metrics_token,
        **{f"EPHEMERA_{system.upper()}_{name}": value for name, value in own.items()},
    }


def _elsewhere(servers: Servers, system: str, at: _Addresses) -> dict[str, str]:
    """Where a service finds the others, and what the user named."""
    given = servers.given
    found: dict[str, str | None] = {}
    match system:
        case "slides":
            found = {"MODEL_URL": at.model_url, "QDRANT_URL": given.qdrant_url}
        case "scripture":
            jwks = f"{at.urls['identity']}/.well-known/jwks.json"
            found = {"JWKS": jwks, "QDRANT_URL": given.qdrant_url}
        case "feed":
            found = {"GRPC_ADDRESS": at.grpc, "MONGODB_URL": given.mongodb_url}
        case _:
            pass
    return {name: value for name, value in found.items() if value is not None}
