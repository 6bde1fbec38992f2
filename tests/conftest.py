"""What all tests share: real servers that start once, and event loops to run on."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest
import uvloop

from ephemera import embedded
from ephemera.embedded import Cluster, Postgres, Sentinel, Valkey
from tests import isolation, least_privilege, matrix, server_choice
from tests.server_choice import ClusterAsServer
from tests.wire.debian_redis import BINARY, DebianRedis

_ON_BOTH_LOOPS = "on_both_loops"
_SLOW = ("tests/chaos/", "tests/services/", "tests/console/", "tests/traps/test_jobs")
"""Tests of processes, which mostly wait."""

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
    """Skip what the chosen server cannot run, and begin with the slow files: none is left for the end."""
    server_choice.skip_what_cannot_run(config, items)
    matrix.mark(items)
    items.sort(key=lambda item: not item.nodeid.startswith(_SLOW))


def pytest_collection_finish() -> None:
    """Take what collection has imported out of the garbage collector, which would scan it in each test."""
    import_module("hypothesis")  # asks the collector who refers to trio's generator of random numbers
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what is not UTF-8 in captured logs: a worker cannot send it, and the run would end."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


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


def running_server(request: pytest.FixtureRequest) -> Iterator[Valkey | ClusterAsServer]:
    """Run a Valkey, or by `--server` another."""
    if request.config.getoption("--server") == "cluster":
        yield ClusterAsServer(request.getfixturevalue("cluster"))
        return
    with embedded.valkey(config={"enable-debug-command": "yes"}) as running:
        least_privilege.share(running)
        isolation.share(running)
        yield running


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Valkey | ClusterAsServer]:
    """A server for all tests that leave it running and configured as it is."""
    yield from running_server(request)


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


@pytest.fixture(scope="session")
def redis7() -> Iterator[DebianRedis]:
    """Debian's Redis 7, where it is installed."""
    if not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    with DebianRedis() as running:
        least_privilege.share(running)
        isolation.share(running)
        yield running


@pytest.fixture(params=["server", "redis7", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """Where a pattern or an adapter must work: on Valkey, on Redis 7 and on a cluster."""
    running: Valkey | DebianRedis | Cluster = request.getfixturevalue(request.param)
    return running.url
