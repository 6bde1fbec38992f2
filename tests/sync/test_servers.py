"""A synchronous store under gunicorn's sync and gevent workers, and in Celery's prefork pool."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey, free_ports

ROOT = Path(__file__).parent.parent.parent
APP = "tests.sync.wsgi_app"


@pytest.fixture
def own_server() -> Iterator[Valkey]:
    """A server of the test's own, whose keys it can count on."""
    with embedded.valkey() as started:
        yield started


@contextmanager
def running(server: Valkey, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the server's URL, stopped in the end."""
    environment = {**os.environ, "EPHEMERA_URL": server.url}
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(60) in (0, -15)


def eventually(attempt: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Repeat something until it succeeds, while the process runs."""
    ends = time.monotonic() + 60
    while True:
        try:
            attempt()
        except (OSError, AssertionError):
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("worker", ["sync", "gevent"])
def test_gunicorn(own_server: Valkey, worker: str) -> None:
    """Two workers count forty requests, one at a time; each loads in the greenlet or thread that asked."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}/"
    options = ["--workers", "2", "--worker-class", worker, "--bind", f"127.0.0.1:{port}"]
    with running(own_server, "gunicorn", *options, f"{APP}:application") as process:
        eventually(lambda: urlopen(url, timeout=60).read(), process)

        def ask(_: int) -> tuple[str, str]:
            with urlopen(url, timeout=60) as response:
                counted, _, loaded = response.read().decode().partition(" ")
                return counted, loaded

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(40)))
    assert {loaded for _, loaded in answers} == {"True"}
    assert len({counted for counted, _ in answers}) == 40


def test_celery_prefork(own_server: Valkey) -> None:
    """Children of a parent that was connected count twenty tasks, one at a time, on their own connections."""
    options = [
        "worker",
        "--pool",
        "prefork",
        "--concurrency",
        "3",
        "--loglevel",
        "WARNING",
        "--without-mingle",
    ]
    command = [sys.executable, "-c", f"from {APP} import task\nfor _ in range(20): task.delay()"]
    subprocess.run(
        command, cwd=ROOT, env={**os.environ, "EPHEMERA_URL": own_server.url}, check=True, timeout=60
    )
    with running(own_server, "celery", "-A", APP, *options) as process:
        eventually(lambda: _all_done(own_server), process)
    results = [line.split() for line in _results(own_server)]
    assert len({pid for pid, _, _ in results}) > 1
    assert sorted(int(counted) for _, counted, _ in results) == list(range(20))
    assert {loaded for _, _, loaded in results} == {"True"}


def _results(server: Valkey) -> list[str]:
    found = server.ask("LRANGE", "results", "0", "-1")
    assert isinstance(found, list)
    return [str(line) for line in found]


def _all_done(server: Valkey) -> None:
    assert len(_results(server)) == 20
