"""The five services as in production: each a user of its own on its servers, on Redis 7 by TLS throughout.

On Valkey plainly, on Redis 7 by TLS with certificates on both sides, PostgreSQL included. All tests look at
the same services, after the scenarios of their users (`scenarios`).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

import httpx
import pytest

from ephemera.embedded import Postgres, free_ports
from tests.security import scenarios
from tests.security.guarded import CANARY, SYSTEMS, Guarded, on_redis_by_tls, on_valkey
from tests.security.scenarios import ScenarioResult
from tests.services import (
    feed_users,
    identity_users,
    league_users,
    scripture_readers,
    slides_processes,
    slides_users,
)
from tests.services.services import Served, serving
from tests.wire.debian_redis import BINARY

SCRAPER = f"{CANARY}-of-the-scraper"
EACH = pytest.mark.parametrize("system", SYSTEMS)
pytestmark = pytest.mark.timeout(400)  # the first test waits for seven processes and five scenarios


class World(NamedTuple):
    """Services under way, and what came of their scenarios."""

    guarded: Guarded
    services: dict[str, Served]
    results: dict[str, ScenarioResult]
    folder: Path


@pytest.fixture(scope="module", params=["valkey", "redis7-tls"])
def world(
    request: pytest.FixtureRequest, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """All five, after their scenarios."""
    folder = tmp_path_factory.mktemp("logs")
    with ExitStack() as stack:
        if request.param == "valkey":
            guarded = stack.enter_context(on_valkey(postgres))
        elif not BINARY.exists():
            pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
        else:
            guarded = stack.enter_context(on_redis_by_tls(postgres, tmp_path_factory.mktemp("certificates")))
        environments = {system: _environment(system, guarded, folder) for system in SYSTEMS}
        contexts = {name: serving(name, folder, **variables) for name, variables in environments.items()}
        with ThreadPoolExecutor(2) as threads:  # more would only take longer together
            begun = {name: threads.submit(stack.enter_context, each) for name, each in contexts.items()}
            services = {name: each.result() for name, each in begun.items()}
        stack.enter_context(slides_processes.working(folder, environments["slides"]))
        stack.enter_context(slides_processes.working(folder, environments["scripture"], service="scripture"))
        stack.enter_context(feed_users.working(folder, environments["feed"]))
        results = {name: getattr(scenarios, name)(served) for name, served in services.items()}
        yield World(guarded, services, results, folder)


def _environment(system: str, guarded: Guarded, folder: Path) -> dict[str, str]:
    own = {
        "identity": {**identity_users.QUICK, **identity_users.UNLIMITED},
        "slides": slides_users.QUICK,
        "scripture": {
            **scripture_readers.UNLIMITED,
            **scripture_readers.keys_in(folder),
            "EPHEMERA_SCRIPTURE_CONSUMERS": "false",  # its worker has them
        },
        "feed": {**feed_users.QUICK, "EPHEMERA_FEED_GRPC_ADDRESS": f"127.0.0.1:{free_ports(1)[0]}"},
        "league": {**league_users.QUICK, **league_users.UNLIMITED},
    }
    shared = {"EPHEMERA_LOG_LEVEL": "debug", "EPHEMERA_METRICS_TOKEN": SCRAPER}
    return {**guarded.places(system), **own[system], **shared}


def test_the_users_of_ephemera_acl_suffice(world: World) -> None:
    """Each service does all that it is for as the user of its catalogue, and is refused nothing."""
    assert world.guarded.refusals() == []


def test_no_secret_is_in_a_log(world: World) -> None:
    """Neither a canary nor a token, cookie, key or link is in what services and workers logged at debug."""
    logs = {path.name: path.read_text() for path in world.folder.glob("*.log")}
    assert len(logs) == len(SYSTEMS) + 3, "five services and three workers"
    assert all('"message":' in log for log in logs.values())
    found = [(name, secret) for name, log in logs.items() for secret in _secrets(world) if secret in log]
    assert found == []


@EACH
def test_no_secret_is_in_an_error(world: World, system: str) -> None:
    """What was refused does not repeat the secrets that it was sent, in body or headers."""
    errors = "\n".join(world.results[system].errors)
    assert len(world.results[system].errors) >= 5
    assert [secret for secret in _secrets(world) if secret in errors] == []


def test_redis_holds_no_secret(world: World) -> None:
    """A dump of both servers, unpacked, opens nothing: it has digests and ids."""
    everything = world.guarded.everything()
    assert len(everything) > 10_000
    assert [secret for secret in _secrets(world) if secret.encode() in everything] == []


def _secrets(world: World) -> set[str]:
    found = {CANARY, *(secret for result in world.results.values() for secret in result.secrets)}
    assert all(len(secret) >= 10 for secret in found)
    return found


@EACH
def test_every_administrative_route_is_closed(world: World, system: str) -> None:
    """Whatever the OpenAPI document has for administrators is 401 for strangers and 403 for users."""
    served = world.services[system]
    routes = [(method, path) for method, path in _operations(served) if _is_administrative(system, path)]
    assert len(routes) == {"identity": 12, "slides": 5, "scripture": 11, "feed": 0, "league": 37}[system]
    wrong = {"authorization": f"Bearer {scenarios.UNSAID}"}
    for method, path in routes:
        for headers in ({}, wrong):
            stranger = httpx.request(method, served.url + path, json={}, headers=headers)
            assert stranger.status_code == 401, (method, path, stranger.text)
    with _signed_in(system, served) as user:
        for method, path in routes:
            answer = user.request(method, path, json={})
            assert answer.status_code == 403, (method, path, answer.text)


def _operations(served: Served) -> Iterator[tuple[str, str]]:
    """Each operation of a service, with some id in the place of each parameter."""
    for path, operations in served.client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            kinds = {each["name"]: each["schema"].get("type") for each in operation.get("parameters", ())}
            given = {name: "1" if kind == "integer" else str(UUID(int=1)) for name, kind in kinds.items()}
            yield method.upper(), path.format_map(given)


def _is_administrative(system: str, path: str) -> bool:
    if system == "scripture":
        return path.startswith(("/users", "/plans", "/ingest"))
    return path.startswith(("/admin/", "/api/admin/"))


@contextmanager
def _signed_in(system: str, served: Served) -> Iterator[httpx.Client]:
    """A client of a signed-in user who is no administrator."""
    with httpx.Client(base_url=served.url, timeout=30) as client:
        if system == "identity":
            token = identity_users.newcomer(served).tokens["access_token"]
            client.headers["authorization"] = f"Bearer {token}"
        elif system == "scripture":
            client.headers["authorization"] = f"Bearer {scripture_readers.Reader(served).token}"
        elif system == "slides":
            client.cookies = slides_users.Person(served, slides_users.VIEWER).client.cookies
        elif system == "league":
            name = f"bob{uuid4().hex[:8]}"
            client.post("/api/users", json={"name": name, "password": scenarios.PASSWORD}).raise_for_status()
            form = {"name": name, "password": scenarios.PASSWORD}
            client.post("/api/session", json=form).raise_for_status()
        yield client


@EACH
def test_metrics_require_the_token(world: World, system: str) -> None:
    """Without it they are 401, with it they have the store's figures and, by INFO, those of its servers."""
    client = world.services[system].client
    strangers: tuple[dict[str, str], ...] = (
        {},
        {"authorization": f"Bearer {SCRAPER}x"},
        {"authorization": f"Basic {SCRAPER}"},
    )
    for headers in strangers:
        refused = client.get("/metrics", headers=headers)
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
    shown = client.get("/metrics", headers={"authorization": f"Bearer {SCRAPER}"})
    assert shown.status_code == 200
    assert shown.headers["content-type"].startswith("text/plain; version=")
    assert "ephemera_keyspace_writes_total" in shown.text
    assert 'ephemera_connection_up{server="' in shown.text
    assert "ephemera_server_memory_bytes" in shown.text
    assert ("feed_insights_total 5.0" in shown.text) == (system == "feed")
    assert CANARY not in shown.text


def test_a_missing_permission_is_reported(world: World) -> None:
    """Identity's look at its server's keys needs SCAN, which its user has not: 503 that says what to do."""
    root = identity_users.administrator(world.services["identity"])
    refused = root.ask("GET", "/admin/redis/stats")
    assert refused.status_code == 503
    assert "ephemera acl identity --for service --for monitoring" in refused.json()["detail"]
