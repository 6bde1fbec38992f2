"""Running a built-in service as its own process, as `ephemera serve NAME` does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ephemera.embedded import free_ports
from tests.timeouts import with_long_timeouts

_STARTS_WITHIN = 60.0  # seconds; machines that run tests are busy
_URLS = ("EPHEMERA_URL", "EPHEMERA_QUEUE_URL")
COMMAND = str(Path(sys.executable).with_name("ephemera"))
SCRAPER = {"EPHEMERA_METRICS_TOKEN": "the-token-of-a-scraper"}
"""With it, a service has `/metrics`."""


class Served:
    """A service under way: where it is, what it logs, and a client that asks it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
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

    It waits longer for Redis than it would elsewhere (`patience`), unless a URL says how long.
    """
    usual = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    waiting = {name: with_long_timeouts(variables[name]) for name in _URLS if variables.get(name)}
    return {**usual, **variables, **waiting}


@contextmanager
def serving(name: str, folder: Path, **variables: str) -> Iterator[Served]:
    """A service that is ready, and that is gone afterwards; its log is in the folder."""
    port = free_ports(1)[0]
    log = folder / f"{name}-{port}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [COMMAND, "serve", name, "--port", str(port)],
            env=environment(**variables),
            stdout=stderr,
            stderr=stderr,
        )
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
