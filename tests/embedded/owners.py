"""Processes that own embedded servers, for tests that end them in various ways."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Self

import psutil

from ephemera.embedded import _processes as processes
from tests.child_processes import is_alive

SCRIPT = """
import json, os, signal, sys, threading, time
from ephemera.embedded import cluster, postgres, sentinel, valkey

def report(**facts):
    print(json.dumps(facts), flush=True)

def report_servers(*servers):
    report(supervisors=[s.supervisor_pid for s in servers], folders=[str(s.log.parent) for s in servers])

"""
WAIT = 90.0  # seconds; a Sentinel that was frozen for two does nothing for thirty


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether the condition holds in time."""
    deadline = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def family(supervisor: int) -> list[int]:
    """Return the ids of a supervisor, its server and the server's children."""
    return [supervisor, *(child.pid for child in psutil.Process(supervisor).children(recursive=True))]


class Owner:
    """Another Python process, whose script reports what it did as lines of JSON."""

    def __init__(self, script: str, python: str = sys.executable, user: int | None = None) -> None:
        paths = [str(processes.wheel_folder(name).parent) for name in ("ephemera", "hiredis")]
        self.process = subprocess.Popen(
            [python, "-c", SCRIPT + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            cwd="/",
            user=user,
            start_new_session=True,
        )

    def next_report(self) -> dict[str, Any]:
        """Return the next report of the script."""
        assert self.process.stdout is not None
        facts: dict[str, Any] = json.loads(self.process.stdout.readline())
        return facts

    def kill(self) -> None:
        """End the owner with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def python_for_any_user() -> str | None:
    """Return a Python like ours that an ordinary user can run, if there is one."""
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")):
        if python and version_as_nobody(python) == sys.version_info[:2]:
            return python
    return None


def version_as_nobody(python: str) -> tuple[int, ...]:
    """Return the version of a Python if an ordinary user can run it."""
    try:
        done = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2])"],
            user=65534,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(int(part) for part in done.stdout.split())
