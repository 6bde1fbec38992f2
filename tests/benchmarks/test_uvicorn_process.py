"""An application that is measured has a core of its own."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.servers import Servers
from benchmarks.uvicorn_process import serve_app
from benchmarks.web import connected


def _cores(process: int) -> set[int]:
    return set(os.sched_getaffinity(process))


def _children() -> set[int]:
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended in the meantime
            if int(status.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(status.parent.name))
    return found


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are chosen on Linux alone")
async def test_an_application_has_a_core_to_itself() -> None:
    """This process, which left that core, may use every core again afterwards."""
    before = _cores(0)
    if len(before) < 2:
        pytest.skip("there is one core, which all share")
    with Servers() as servers:
        valkey, others = servers.valkey.pid, _children()
        async with serve_app("benchmarks.web_app:bare", servers) as port:
            (await connected(port, b"")).close()
            (application,) = _children() - others
            assert len(_cores(application)) == 1
            assert _cores(0) == _cores(valkey) == before - _cores(application)
    assert _cores(0) == before
