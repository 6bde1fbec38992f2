"""Traps of the scripture gateway that no single pattern's tests show."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera import connect, embedded
from ephemera.embedded import Postgres, Valkey, free_ports
from ephemera.errors import WrongServer
from ephemera.keyspace import SERVER_IDENTITY
from ephemera_services.scripture import catalogue
from tests.keyspace.test_server_identity import graph_module
from tests.services.services import COMMAND, environment, serving

__all__ = ["graph_module"]


@pytest.fixture
def cache() -> Iterator[Valkey]:
    """The application's cache, marked as its own."""
    with embedded.valkey() as running:
        running.ask("SET", SERVER_IDENTITY.key(), "scripture")
        yield running


@pytest.fixture
def graph(graph_module: str) -> Iterator[Valkey]:
    """The graph database next door, which is a Redis server, too."""
    with embedded.valkey(config={"loadmodule": graph_module}) as running:
        yield running


async def test_c7_a_naive_client_with_the_wrong_port_writes_into_the_graph_database(
    cache: Valkey, graph: Valkey
) -> None:
    """The servers look alike, so nothing tells the naive client; our store refuses before it writes."""
    graph.ask("SETEX", "gl:passage:john.3.16", 3600, "For God so loved the world")  # meant for the cache
    assert graph.ask("DBSIZE") == 1

    graph.ask("FLUSHALL")
    with pytest.raises(WrongServer, match="has unexpected modules: Graph"):
        async with connect(graph.url, catalogue, identity="scripture"):
            pytest.fail("it must not open")
    with embedded.valkey() as neighbour:  # without a module, and without the mark
        with pytest.raises(WrongServer, match="has no mark"):
            async with connect(neighbour.url, catalogue, identity="scripture"):
                pytest.fail("it must not open")
        assert neighbour.ask("DBSIZE") == 0
    assert graph.ask("DBSIZE") == 0
    async with connect(cache.url, catalogue, identity="scripture") as store:
        assert await store.call("PING")


def test_c7_the_service_does_not_start_on_the_graph_database(
    cache: Valkey, graph: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """On the graph database it ends and says why, with nothing written; on its cache it serves."""
    database = {"EPHEMERA_DATABASE_URL": postgres.database("trap_c7")}
    port = str(free_ports(1)[0])
    refused = subprocess.run(
        [COMMAND, "serve", "scripture", "--port", port],
        env=environment(EPHEMERA_URL=graph.url, **database),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode != 0
    assert "has unexpected modules: Graph" in refused.stderr
    assert graph.ask("DBSIZE") == 0
    with serving("scripture", tmp_path, EPHEMERA_URL=cache.url, **database) as service:
        assert service.client.get("/passages/john.3.16").status_code == 200
    assert cache.ask("EXISTS", "gl:passage:{john.3.16}") == 1
    assert graph.ask("DBSIZE") == 0
