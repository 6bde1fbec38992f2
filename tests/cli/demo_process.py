"""`ephemera demo` as a process: its output, its child processes, and whether they are gone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.child_processes import survivors

SCRIPT = str(Path(sys.executable).with_name("ephemera"))
TIMEOUT = 150.0  # seconds; machines that run tests are busy
_ROW = re.compile(r"^  (\w+) +(\S+)", re.MULTILINE)
_COMMAND = re.compile(r"^  ((?:curl|\S*ephemera|kill) .+)$", re.MULTILINE)


class DemoProcess:
    """A demo that runs, or ran."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def printed(self) -> str:
        """Everything printed so far, on stdout and stderr."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def rows(self) -> dict[str, str]:
        """The overview: what runs where."""
        before, _, _ = self.printed.partition("\nTry\n")
        return dict(_ROW.findall(before))

    @property
    def commands(self) -> list[str]:
        """The commands that the overview suggests."""
        return _COMMAND.findall(self.printed.partition("\nTry\n")[2])

    @property
    def console_password(self) -> str:
        """The password of the console."""
        found = re.search(r"sign in as demo with (\S+)", self.printed)
        assert found is not None
        return found[1]

    def wait_until_ready(self) -> None:
        """Return when the whole overview is printed."""
        self.wait_until(lambda: "kill -9" in self.printed, "the overview")

    def wait_until(self, poll: Callable[[], Any], what: str) -> Any:
        """Call `poll` until it returns something true, while the demo runs."""
        deadline = time.monotonic() + TIMEOUT
        while not (found := poll()):
            assert self.process.poll() is None, f"it exited ({self.process.returncode}): {self.printed}"
            assert time.monotonic() < deadline, f"not within {TIMEOUT:.0f} s: {what}; printed: {self.printed}"
            time.sleep(0.05)
        return found

    def descendants(self) -> list[psutil.Process]:
        """Every running child process, recursively."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def stop(self, number: signal.Signals) -> int:
        """Send a signal and wait; a process that is left behind fails the test."""
        descendants = self.descendants()
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT)
        alive = survivors(descendants, within=30)
        assert not alive, f"left behind: {[each.cmdline() for each in alive]}"
        return code


@contextmanager
def running_demo(folder: Path, *arguments: str) -> Iterator[DemoProcess]:
    """Run `ephemera demo` with these arguments, and stop it afterwards."""
    output = folder / "printed.txt"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    with output.open("wb") as stdout:
        process = subprocess.Popen([SCRIPT, "demo", *arguments], env=inherited, stdout=stdout, stderr=stdout)
    demo = DemoProcess(process, output)
    try:
        yield demo
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for logs in re.findall(r"/\S*/ephemera-demo-\w+", demo.printed):
            shutil.rmtree(logs, ignore_errors=True)  # kept when it was killed, or a process died
