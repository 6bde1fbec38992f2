"""The services and workers of a campaign as real processes, started again when they are gone.

Each is `ephemera serve` or `ephemera worker` with a clock that can be set (`shifted_clock`), in a process
group of its own, so that a signal reaches a worker's children as well. One that ends without having been
killed by us is a finding.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from ephemera.embedded import LOOPBACK, free_ports
from tests.chaos.campaign import shifted_clock

_STALLED = b"; reconnecting"
_ROOT = Path(__file__).parents[3]


class Member:
    """One process of a system, whichever instance of it runs now."""

    def __init__(
        self, name: str, system: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.system = system
        self.serves = arguments[0] == "serve"
        self.port = free_ports(1)[0] if self.serves else 0
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.log = folder / f"{name}.log"
        self.clock = folder / f"{name}.clock"
        self.started_at = 0.0
        self.killed = False
        self._read = 0
        shifted_clock.make(self.clock)
        where = ["--port", str(self.port)] if self.serves else []
        self._command = [
            *(sys.executable, "-m", "tests.chaos.campaign.shifted_clock", str(self.clock), str(os.getpid())),
            *(*arguments, *where),
        ]
        usual = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
        self._environment = {**usual, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, from the thread that lives as long as the campaign: the process dies with it."""
        self.killed = False
        shifted_clock.jump(self.clock, 0.0)
        self.started_at = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    def is_ready(self) -> bool:
        """Whether it serves, or works."""
        if self.exit_code is not None:
            return False
        if not self.serves:
            return self._says_so()
        asking = HTTPConnection(LOOPBACK, self.port, timeout=5)
        try:
            asking.request("GET", "/readyz")
            return asking.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            asking.close()

    def kill(self, *, group: bool = True) -> None:
        """SIGKILL, to all of it or to its first process alone."""
        self.killed = True
        self._signal(signal.SIGKILL, group=group)

    def pause(self) -> None:
        """SIGSTOP to all of it."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT to all of it."""
        self._signal(signal.SIGCONT)

    def jump(self, seconds: float) -> None:
        """Set its clock wrong by so much."""
        shifted_clock.jump(self.clock, seconds)

    def end(self) -> None:
        """Be rid of it."""
        if self._process is not None:
            self.kill()
            self._process.wait()

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""

    def has_stalled(self) -> bool:
        """Whether its log says, since the last time, that a server did not answer it in time.

        On a machine that is busy enough this happens without a fault, and has the same effect as one.
        """
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        self._read += len(new)
        return _STALLED in new

    def _says_so(self) -> bool:
        """A worker has no port to ask; by now it has begun, or its log would say why not."""
        return time.monotonic() - self.started_at > 1.0

    def _signal(self, number: signal.Signals, *, group: bool = True) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            if group:
                os.killpg(self._process.pid, number)
            else:
                os.kill(self._process.pid, number)
