"""CORE2: an accessor made before `os.fork()` wrote into the parent's socket from the child."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ephemera.embedded import Valkey

_CHILDREN = """
import asyncio, gc, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # about fork with threads, which is what we test
from ephemera import Catalogue, LoopMisuse, connect, fixed, blocking
catalogue = Catalogue("core2")
NOTE = catalogue.value("core2:{name}", bytes, lifetime=fixed(minutes=1), purpose="A note")

def child(use):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        use()
    except LoopMisuse as error:
        code = 0 if "before os.fork()" in str(error) else 3
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    finally:
        gc.collect()
        os._exit(code)

def ended_well(pids):
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * len(pids), codes
"""
_SYNC = """
with blocking.connect(URL, catalogue) as store:
    notes, large = store.aio[NOTE], b"x" * 100_000
    pids = []
    for n in range(6):
        store.call("ECHO", n)
        pids.append(child(lambda: store.wait(notes.put(large, name="child"))))
        for m in range(50):
            assert store.call("ECHO", f"{n}-{m}") == f"{n}-{m}".encode()
    ended_well(pids)
    assert store.call("EXISTS", "core2:child") == 0
"""
_ASYNC = """
async def main():
    async with connect(URL, catalogue) as store:
        notes, large = store[NOTE], b"x" * 100_000
        pids = []
        for n in range(6):
            queued = [store.call("ECHO", f"{n}-{m}") for m in range(20)]  # in `out` at the time of the fork
            pids.append(child(lambda: store.call("SET", "core2:child", large)))
            pids.append(child(lambda: asyncio.run(notes.put(large, name="child"))))
            assert await asyncio.gather(*queued) == [f"{n}-{m}".encode() for m in range(20)]
        ended_well(pids)
        assert await store.call("EXISTS", "core2:child") == 0
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [_SYNC, _ASYNC], ids=["sync", "async"])
def test_core2_a_child_cannot_write_to_its_parents_connection(server: Valkey, program: str) -> None:
    """The child's call is refused before a byte is written, and every reply in the parent is right."""
    source = f"{_CHILDREN}\nURL = {server.url!r}\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
