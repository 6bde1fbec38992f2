"""A semantic cache in several processes: one asks the model, and one that is killed is replaced."""

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
        """Let the callers begin."""
        stdin = cast("IO[str]", self.process.stdin)
        stdin.write("\n")
        stdin.flush()

    def next_line(self) -> str:
        """Its next line of output."""
        return cast("IO[str]", self.process.stdout).readline().strip()

    def rest(self) -> list[str]:
        """All of its output until it ends."""
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
    """After SIGKILL while the model writes another process asks once the lease has ended."""
    first, second = Crowd(server.url, key, 60), Crowd(server.url, key, 0.01)
    first.go()
    assert first.next_line() == "asks"
    second.go()
    first.process.kill()
    first.process.communicate()
    assert second.rest() == ["asks", key]
