"""Examples as a reader runs them: servers and workers in processes of their own, and HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx

EXAMPLES = Path(__file__).parents[2] / "examples"
_READY = 60.0  # seconds


def lines_of(name: str) -> int:
    """How long an example is, its README included."""
    files = [file for file in (EXAMPLES / name).iterdir() if file.suffix in (".py", ".md")]
    return sum(len(file.read_text().splitlines()) for file in files)


@contextmanager
def running(
    name: str, command: list[str], log: Path, is_ready: Callable[[], bool], **variables: str
) -> Iterator[None]:
    """A module of Python, run in an example's folder; what it prints goes to `log`."""
    environment = {**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-W", "error::ResourceWarning", "-m", *command],
            cwd=EXAMPLES / name,
            env=environment,
            stdout=written,
            stderr=written,
        )
        try:
            deadline = monotonic() + _READY
            while not is_ready():
                assert process.poll() is None, log.read_text()
                assert monotonic() < deadline, log.read_text()
                sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(30)


def listens(address: str) -> Callable[[], bool]:
    """Whether a server responds at this address."""

    def ask() -> bool:
        try:
            httpx.get(address, timeout=30)
        except httpx.TransportError:
            return False
        return True

    return ask
