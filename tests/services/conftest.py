"""What tests of services share: a Redis of their own, a database, and running services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.server_choice import ClusterAsServer
from tests.services.identity_users import QUICK, RESOURCE_SERVER, UNLIMITED, Mailbox
from tests.services.services import SCRAPER, Served, serving
from tests.services.slides_processes import (  # noqa: F401 - fixtures of the slides tests
    anna,
    slides,
    slides_again,
    slides_cache,
    slides_model,
    slides_places,
    slides_queue,
    slides_worker,
)


@pytest.fixture(scope="module")
def valkey(request: pytest.FixtureRequest) -> Iterator[Valkey | ClusterAsServer]:
    """A Valkey for the tests of one file, which may stop and start it; by `--server`, a cluster."""
    if request.config.getoption("--server") == "cluster":
        running_cluster = ClusterAsServer(request.getfixturevalue("cluster"))
        running_cluster.ask("FLUSHALL")
        yield running_cluster
        running_cluster.ask("FLUSHALL")  # including the identity of a service
        return
    with embedded.valkey() as running:
        yield running


@pytest.fixture(scope="module")
def places(valkey: Valkey, postgres: Postgres, request: pytest.FixtureRequest) -> dict[str, str]:
    """Where a file's services keep things: variables that name its Redis and its database."""
    database = request.module.__name__.rpartition(".")[2]
    return {"EPHEMERA_URL": valkey.url, "EPHEMERA_DATABASE_URL": postgres.database(database)}


@pytest.fixture(scope="module")
def mailbox(tmp_path_factory: pytest.TempPathFactory) -> Mailbox:
    """The mails of the identity service."""
    return Mailbox(tmp_path_factory.mktemp("mails"))


@pytest.fixture(scope="module")
def identity_environment(places: dict[str, str], mailbox: Mailbox) -> dict[str, str]:
    """What the processes of the identity service share."""
    return {
        **places,
        **QUICK,
        **UNLIMITED,
        **SCRAPER,
        **mailbox.variables,
        "EPHEMERA_IDENTITY_INTROSPECTION_TOKENS": RESOURCE_SERVER,
    }


@pytest.fixture(scope="module")
def identity(
    identity_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """An identity service without limits that tests would meet."""
    with serving("identity", tmp_path_factory.mktemp("logs"), **identity_environment) as running:
        yield running


@pytest.fixture(scope="module")
def second(
    identity: Served, identity_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Another process of the same service."""
    with serving("identity", tmp_path_factory.mktemp("logs"), **identity_environment) as running:
        yield running
