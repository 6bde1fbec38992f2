"""What all tests share: real servers that start once, and event loops to run on."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import uvloop

from ephemera import embedded
from ephemera.embedded import Cluster, Postgres, Sentinel, Valkey
from tests import isolation, least_privilege, matrix, server_choice
from tests.server_choice import ClusterAsServer

_ON_BOTH_LOOPS = "on_both_loops"

least_privilege.install()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--server` and `--record`."""
    server_choice.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare our markers."""
    config.addinivalue_line("markers", f"{_ON_BOTH_LOOPS}: run on asyncio's loop and on uvloop")
    config.addinivalue_line("markers", "patient: of tests/chaos, waits for a server as other tests do")
    server_choice.configure(config)
    matrix.configure(config)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # As in a shell's background job, where no program that a test starts would heed it, either.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what the chosen server cannot run."""
    server_choice.skip_what_cannot_run(config, items)
    matrix.mark(items)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Record what came out, if asked."""
    server_choice.record(config, terminalreporter.stats)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test on asyncio's loop, and the marked ones on uvloop, too."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.get_closest_marker(_ON_BOTH_LOOPS):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Valkey | ClusterAsServer]:
    """A Valkey for all tests that leave it running and configured as it is; by `--server`, another."""
    if request.config.getoption("--server") == "cluster":
        yield ClusterAsServer(request.getfixturevalue("cluster"))
        return
    with embedded.valkey(config={"enable-debug-command": "yes"}) as running:
        least_privilege.share(running)
        isolation.share(running)
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three masters with a replica each, for tests that leave the slots where they are."""
    # No master of it is ever given up: on a busy machine one may stand still for seconds.
    with embedded.cluster(node_timeout=60_000) as running:
        least_privilege.share(running)
        isolation.share(running)
        yield running


@pytest.fixture(scope="session")
def sentinel() -> Iterator[Sentinel]:
    """A master, a replica and three Sentinels, for tests that leave the master in its place."""
    with embedded.sentinel() as running:
        isolation.share(running)
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL for all tests; each makes tables of its own."""
    with embedded.postgres() as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _isolated_file() -> None:
    """Start each file on empty shared servers."""
    isolation.empty_shared_servers()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key, or a prefix of keys, that belongs to this test alone."""
    return f"{request.node.name}"


@pytest.fixture(autouse=True)
def _our_log_is_left_as_it_was() -> Iterator[None]:
    """A test that silences the library's log restores it, because later tests read it."""
    yield
    assert logging.getLogger("ephemera").level == logging.NOTSET
