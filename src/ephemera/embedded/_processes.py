"""A supervised server process, from its owner's side: start, signal, stop, and wait until it is ready.

`SupervisedProcess` talks to one supervisor (`_supervisor.py`), which does the work and makes the guarantees.
Only the process that created it may control it. In a forked child `close` does nothing, so a child that
leaves the owner's `with` block, or exits, does not stop its parent's server.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from ephemera.embedded import _supervisor as supervisor
from ephemera.errors import EmbeddedError

LONGEST_SOCKET_FOLDER = 80  # bytes; a unix socket's whole path must stay below 104 on macOS
MARGIN = 10.0  # seconds that a supervisor may take besides waiting for its server
LOG_TAIL = 15  # lines of the log shown in an error


def wheel_folder(package: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise EmbeddedError(f"the package {package} is not installed: pip install 'ephemera-data[embedded]'")
    return Path(spec.origin).parent


def temporary_name() -> Path:
    """Return a new path in the temporary folder, short enough to hold a unix socket."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > LONGEST_SOCKET_FOLDER - len("/ephemera-0123456789ab"):
        parent = "/tmp"  # the folder itself is created by us, with mode 700
    return Path(parent, f"ephemera-{secrets.token_hex(6)}")


def poll_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition holds within some seconds."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True


class SupervisedProcess:
    """One server process and its temporary folder; both end with the owner."""

    def __init__(
        self,
        folder: Path,
        *,
        user: tuple[int, int, int] | None,
        stop: int,
        grace: float,
        death: int,
    ) -> None:
        """Start the supervisor, which creates the folder; see `_supervisor.Spec` for the parameters."""
        self.folder = folder
        self.log = folder / "log"
        self._pid: int | None = None
        self._owner = os.getpid()
        self._grace = grace
        self._requests = 0
        self._received = b""
        self._lock = threading.Lock()
        self._process = self._spawn(
            supervisor.Spec(
                owner=self._owner, folder=str(folder), user=user, stop=stop, grace=grace, death=death
            )
        )
        try:
            self._answer()
        except BaseException:
            self._end()
            raise

    def _spawn(self, spec: supervisor.Spec) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id of the server, even after it ended."""
        if self._pid is None:
            raise EmbeddedError("the server was not started")
        return self._pid

    @property
    def supervisor_pid(self) -> int:
        """The process id of the supervisor."""
        return self._process.pid

    def is_open(self) -> bool:
        """Whether the supervisor is running."""
        return self._process.poll() is None

    def start(self, command: list[str]) -> None:
        """Start the server with this command line."""
        self._request(do="start", command=command)

    def exit_code(self) -> int | None:
        """Return the server's exit code, negative for a signal; None while it runs."""
        return self._request(do="poll")

    def signal(self, number: int) -> None:
        """Signal the server and its children."""
        self._request(do="signal", signal=number)

    def halt(self, number: int) -> None:
        """Stop the server with this signal and wait for its end; its folder stays."""
        self._request(do="stop", signal=number)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code of a process that ends by itself; None if it does not in time."""
        poll_until(lambda: self.exit_code() is not None, seconds)
        return self.exit_code()

    def close(self) -> None:
        """Stop the server and its supervisor and remove the temporary folder; may be called again."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._end()

    def _end(self) -> None:
        stdin, stdout = self._pipes()
        with suppress(EmbeddedError):
            self._write({"do": "end"})
        try:
            self._process.wait(2 * self._grace + MARGIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdin.close()
        stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        return stdin, stdout

    def _request(self, **request: object) -> int | None:
        if os.getpid() != self._owner:
            raise EmbeddedError(
                "an embedded server is controlled by the process that started it, not by its forks"
            )
        with self._lock:
            self._requests += 1
            self._write({"number": self._requests, **request})
            return self._answer()

    def _write(self, request: dict[str, object]) -> None:
        try:
            self._pipes()[0].write(json.dumps(request).encode() + b"\n")
        except (BrokenPipeError, ValueError):
            raise EmbeddedError("the server was stopped: restart() it first") from None

    def _answer(self) -> int | None:
        """Return the exit code in the answer to the last request, skipping answers to interrupted ones."""
        while True:
            while b"\n" not in self._received:
                self._received += self._read(self._pipes()[1].fileno())
            line, _, self._received = self._received.partition(b"\n")
            state = json.loads(line)
            if state["number"] == self._requests:
                self._pid = state["pid"]
                exit_code: int | None = state["exit"]
                return exit_code

    def _read(self, pipe: int) -> bytes:
        """Read some bytes; a fork may hold the other end open, so end-of-file alone does not show its end."""
        poller = select.poll()
        poller.register(pipe, select.POLLIN)
        while self._process.poll() is None:
            if poller.poll(200):
                if data := os.read(pipe, 4096):
                    return data
                break
        raise EmbeddedError(
            f"the supervisor of the embedded server ended (exit code {self._process.wait()}), "
            "and the server with it: restart() it"
        )

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError as problem:
            return f"(no log: {problem.strerror})"
        return "\n".join(lines[-LOG_TAIL:])

    def wait_until(self, ready: Callable[[], bool], name: str, seconds: float) -> None:
        """Wait until `ready` is true; raise with the end of the log if the server ends or is too slow."""
        if poll_until(lambda: ready() or self.exit_code() is not None, seconds):
            if (code := self.exit_code()) is None:
                return
            problem = f"{name} ended (exit code {code})"
        else:
            problem = f"{name} was not ready within {seconds} s"
        raise EmbeddedError(f"{problem}; its log:\n{self.log_tail()}")
