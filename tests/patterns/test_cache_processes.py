"""A cache in several real processes: one of them loads, and one that is killed is replaced."""

from __future__ import annotations

import subprocess
import sys
from typing import IO, cast

import pytest

from ephemera.embedded import Valkey
from tests.patterns.profiles import user


class Crowd:
    """A process of callers."""

    def __init__(self, url: str, who: str, seconds: float) -> None:
        command = [sys.executable, "-m", "tests.patterns.cache_crowd", url, who, str(seconds)]
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


def _commands(server: Valkey) -> int:
    stats = str(server.ask("INFO", "stats")).splitlines()
    return next(int(line.split(":")[1]) for line in stats if line.startswith("total_commands_processed"))


@pytest.mark.standalone("it counts the commands of one server")
def test_one_process_of_many_loads(server: Valkey) -> None:
    """Four processes with twenty callers each load a cold entry once, with few commands in all."""
    who = user("crowd")
    crowds = [Crowd(server.url, who, 0.3) for _ in range(4)]
    before = _commands(server)
    for crowd in crowds:
        crowd.go()
    said = [word for crowd in crowds for word in crowd.rest()]
    assert sorted(said) == sorted(["loads", *[who] * 4])
    assert _commands(server) - before < 200


def test_a_killed_loader_is_replaced(server: Valkey) -> None:
    """After SIGKILL in the middle of a load another process loads once the lease has ended."""
    who = user("killed")
    first, second = Crowd(server.url, who, 60), Crowd(server.url, who, 0.01)
    first.go()
    assert first.next_line() == "loads"
    second.go()
    first.process.kill()
    first.process.communicate()
    assert second.rest() == ["loads", who]
