"""Answers in several real processes: one of them asks the model, and one that is killed is replaced."""

from __future__ import annotations

import subprocess
import sys
from typing import IO, cast

from ephemera.embedded import Valkey


class Crowd:
    """A process of callers."""

    def __init__(self, url: str, organization: str, seconds: float) -> None:
        command = [sys.executable, "-m", "tests.patterns.answer_crowd", url, organization, str(seconds)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.next_line() == "ready"

    def go(self) -> None:
        """Let the callers call."""
        told = cast("IO[str]", self.process.stdin)
        told.write("\n")
        told.flush()

    def next_line(self) -> str:
        """What it says next."""
        return cast("IO[str]", self.process.stdout).readline().strip()

    def rest(self) -> list[str]:
        """All that it says until its end."""
        said, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return said.split()


def test_one_process_of_many_asks(server: Valkey, key: str) -> None:
    """Four processes with twenty callers each ask the model once for a cold prompt."""
    crowds = [Crowd(server.url, key, 0.3) for _ in range(4)]
    for crowd in crowds:
        crowd.go()
    said = [word for crowd in crowds for word in crowd.rest()]
    assert sorted(said) == sorted(["asks", *[key] * 4])


def test_a_killed_asker_is_replaced(server: Valkey, key: str) -> None:
    """SIGKILL while the model writes: another process asks once the lease is over."""
    first, second = Crowd(server.url, key, 60), Crowd(server.url, key, 0.01)
    first.go()
    assert first.next_line() == "asks"
    second.go()
    first.process.kill()
    first.process.communicate()
    assert second.rest() == ["asks", key]
