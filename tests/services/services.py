"""Running a built-in service as its own process, as `ephemera serve NAME` does.

The processes are forked from one that has imported the services already: a tenth of the processor time of a
new interpreter. `test_settings.py` and the demonstration run the command itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ephemera.cli import main
from ephemera.embedded import free_ports
from tests.timeouts import with_long_timeouts

_STARTS_WITHIN = 60.0  # seconds; machines that run tests are busy
_URLS = ("EPHEMERA_URL", "EPHEMERA_QUEUE_URL")
SERVICES = ("identity", "slides", "scripture", "feed", "league")
COMMAND = str(Path(sys.executable).with_name("ephemera"))
SCRAPER = {"EPHEMERA_METRICS_TOKEN": "the-token-of-a-scraper"}
"""With it, a service has `/metrics`."""


_fork_server = multiprocessing.get_context("forkserver")
_fork_server.set_forkserver_preload(
    ["uvicorn", "uvloop", *(f"ephemera_services.{name}.app" for name in SERVICES)]
)


class ServiceProcess:
    """A process that runs `ephemera` with these arguments; it has the methods of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = _fork_server.Process(target=_run, args=(arguments, dict(environment), log))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("ephemera", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(arguments: Sequence[str], variables: dict[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(variables)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["ephemera", *arguments]
    main()


class Served:
    """A service under way: where it is, what it logs, and a client that asks it."""

    def __init__(self, process: ServiceProcess, port: int, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def lines(self) -> list[dict[str, Any]]:
        """What was logged until now."""
        return [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines()]

    def wait_until_ready(self) -> None:
        """Return when it serves; fail when it ended, with what it said."""
        deadline = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the service ended: {self.log.read_text()[-2000:]}")
            try:
                if self.client.get("/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(f"the service did not start: {self.log.read_text()[-2000:]}")


def environment(**variables: str) -> dict[str, str]:
    """The environment of a service: that of the tests, and nothing of Ephemera's but these.

    It waits longer for Redis than it would elsewhere (`patience`), unless a URL says how long, and has
    `/openapi.json`, unless a test says otherwise.
    """
    usual = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    waiting = {name: with_long_timeouts(variables[name]) for name in _URLS if variables.get(name)}
    return {**usual, "EPHEMERA_DEVELOPMENT": "true", **variables, **waiting}


@contextmanager
def serving(name: str, folder: Path, **variables: str) -> Iterator[Served]:
    """A service that is ready, and that is gone afterwards; its log is in the folder."""
    port = free_ports(1)[0]
    log = folder / f"{name}-{port}.log"
    process = ServiceProcess(["serve", name, "--port", str(port)], environment(**variables), log)
    served = Served(process, port, log)
    try:
        served.wait_until_ready()
        yield served
    finally:
        served.client.close()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
