"""`ephemera demo` as a process: what it prints, which processes it has, and whether they are gone."""

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

SCRIPT = str(Path(sys.executable).with_name("ephemera"))
PATIENCE = 150.0  # seconds; machines that run tests are busy
_ROW = re.compile(r"^  (\w+) +(\S+)", re.MULTILINE)
_COMMAND = re.compile(r"^  ((?:curl|\S*ephemera|kill) .+)$", re.MULTILINE)


class Demonstration:
    """One that runs, or ran."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def printed(self) -> str:
        """Everything that it printed until now, on stdout and stderr."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def rows(self) -> dict[str, str]:
        """What runs where, by the screen."""
        before, _, _ = self.printed.partition("\nTry\n")
        return dict(_ROW.findall(before))

    @property
    def commands(self) -> list[str]:
        """What the screen says to try."""
        return _COMMAND.findall(self.printed.partition("\nTry\n")[2])

    @property
    def console_password(self) -> str:
        """What the console wants."""
        found = re.search(r"sign in as demo with (\S+)", self.printed)
        assert found is not None
        return found[1]

    def wait_until_ready(self) -> None:
        """Return when the whole screen is there."""
        self.until(lambda: "kill -9" in self.printed, "the screen")

    def until(self, asked: Callable[[], Any], what: str) -> Any:
        """What a question gives once it gives something, while the demonstration runs."""
        deadline = time.monotonic() + PATIENCE
        while not (found := asked()):
            assert self.process.poll() is None, f"it ended ({self.process.returncode}): {self.printed}"
            assert time.monotonic() < deadline, (
                f"not within {PATIENCE:.0f} s: {what}; printed: {self.printed}"
            )
            time.sleep(0.05)
        return found

    def family(self) -> list[psutil.Process]:
        """Every process that it has started, and those have, and that runs now."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def end(self, number: signal.Signals) -> int:
        """Send it a signal, and wait; what it left behind fails the test."""
        family = self.family()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not alive, f"left behind: {[each.cmdline() for each in alive]}"
        return code


@contextmanager
def demonstrating(folder: Path, *words: str) -> Iterator[Demonstration]:
    """`ephemera demo` with these words; whatever happens, it is gone afterwards."""
    output = folder / "printed.txt"
    usual = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    with output.open("wb") as stdout:
        process = subprocess.Popen([SCRIPT, "demo", *words], env=usual, stdout=stdout, stderr=stdout)
    demonstration = Demonstration(process, output)
    try:
        yield demonstration
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for logs in re.findall(r"/\S*/ephemera-demo-\w+", demonstration.printed):
            shutil.rmtree(logs, ignore_errors=True)  # they stay when it was killed, or something died
