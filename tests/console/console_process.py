"""Run a console as a process, and browsers that open it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from ephemera.embedded import free_ports

T = TypeVar("T")

COMMAND = str(Path(sys.executable).with_name("ephemera"))
PASSWORD = "a password for tests"
USER = "operator"
CATALOGUE = "tests.console.shop_keys:catalogue"
_STARTS_WITHIN = 60.0  # seconds; machines that run tests are busy
_ROOT = Path(__file__).parents[2]


class RunningConsole:
    """A running console: its URL, and its logs."""

    def __init__(self, process: subprocess.Popen[bytes] | None, port: int, log: Path) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self._log = log

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, if a test started it itself."""
        assert self._process is not None
        return self._process

    def lines(self, logger: str = "ephemera.console.actions") -> list[dict[str, Any]]:
        """The lines of one logger so far."""
        found = [
            msgspec.json.decode(line) for line in self._log.read_bytes().splitlines() if line[:1] == b"{"
        ]
        return [line for line in found if line["logger"] == logger]

    @property
    def said(self) -> str:
        """All output and logs."""
        return self._log.read_text(encoding="utf-8")

    def client(self) -> httpx.Client:
        """A client that is not signed in; close it."""
        return httpx.Client(base_url=self.url, timeout=30)

    @contextmanager
    def signed_in(self) -> Iterator[httpx.Client]:
        """A client that is signed in."""
        with self.client() as client:
            form = {"user": USER, "password": PASSWORD}
            answer = client.post("/sign-in", data=form, headers={"origin": self.url})
            assert answer.status_code == 303, answer.text
            yield client

    def wait_until_ready(self) -> None:
        """Wait until it responds; fail with its output if it ended."""
        deadline = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the console ended: {self.said[-2000:]}")
            try:
                httpx.get(f"{self.url}/sign-in", timeout=5)
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError(f"the console did not start: {self.said[-2000:]}")


@contextmanager
def running_console(
    folder: Path,
    url: str,
    *words: str,
    catalogues: Sequence[str] = (CATALOGUE,),
    password: str = PASSWORD,
    program: Sequence[str] = (COMMAND, "console"),
    **variables: str,
) -> Iterator[RunningConsole]:
    """Start a console with these arguments and variables, and stop it afterwards."""
    port = free_ports(1)[0]
    log = folder / f"console-{port}.log"
    named = [word for name in catalogues for word in ("--catalogue", name)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*program, "--url", url, "--port", str(port), *named, *words],
            env={**environment, **({"EPHEMERA_CONSOLE_PASSWORD": password} if password else {}), **variables},
            stdout=output,
            stderr=output,
            cwd=_ROOT,
        )
    console = RunningConsole(process, port, log)
    try:
        console.wait_until_ready()
        yield console
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def settled(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a thread, because a browser's thread already runs an event loop."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def slug(text: str) -> str:
    """A text as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
