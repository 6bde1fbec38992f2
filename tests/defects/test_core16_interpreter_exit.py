"""CORE7 and CORE16, siblings: a process that never closes its store must still end, whatever it waits for."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from ephemera.embedded import Valkey

WITHIN = (
    20.0  # seconds; an exit takes a fraction of one, and starting the interpreter a few on a busy machine
)

SYNC = "from ephemera import sync; store = sync.connect(url); assert store.call('PING') == b'PONG'\n"
PROGRAMS = {
    "an open store": SYNC,
    "a call that never ends in a daemon thread": SYNC
    + """
        import threading, time
        threading.Thread(target=store.call, args=("BLPOP", "none", 0), daemon=True).start()
        time.sleep(0.2)
    """,
    "a thread that finishes its calls after the main one": SYNC
    + """
        import threading, time
        def work():
            time.sleep(0.3)
            assert store.call("BLPOP", "none", 0.1) is None
            assert store.call("ECHO", "late") == b"late"
            print("late")
        threading.Thread(target=work).start()
    """,
    "a handler that uses the store at exit": SYNC
    + """
        import atexit
        @atexit.register
        def last():
            from ephemera.errors import EphemeraError
            try:
                assert store.call("ECHO", "late") == b"late"
            except EphemeraError:
                pass
            print("late")
    """,
    "a handler that closes it": SYNC + "import atexit; atexit.register(store.close)\n",
    "a wait that is interrupted by the exit": """
        import asyncio, threading, time
        from ephemera import blocking
        store = blocking.connect(url)
        assert store.call("PING") == b"PONG"
        threading.Thread(target=lambda: store.wait(asyncio.sleep(3600)), daemon=True).start()
        time.sleep(0.2)
        raise SystemExit(0)
    """,
    "an async store that is left open": """
        import asyncio
        from ephemera import connect
        async def main():
            opening = connect(url)
            store = await opening.__aenter__()
            pending = asyncio.create_task(store.call("BLPOP", "none", 0))
            assert await store.call("PING") == b"PONG"
            await asyncio.sleep(0.1)
        asyncio.run(main())
    """,
    "both, and a subscription": SYNC
    + """
        import asyncio
        from ephemera import connect
        async def main():
            async with connect(url) as other:
                async with other.subscribe("news") as news:
                    await other.call("PING")
        asyncio.run(main())
    """,
}
SAYS = {name for name in PROGRAMS if "print(" in PROGRAMS[name]}


@pytest.mark.parametrize("name", PROGRAMS)
def test_core16_a_process_with_an_open_store_ends(server: Valkey, name: str) -> None:
    """It ends with code 0 within a bound, and its last words are its own."""
    head, _, rest = PROGRAMS[name].partition("\n")
    program = f"url = {server.url!r}\n{textwrap.dedent(head)}\n{textwrap.dedent(rest)}"
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", program],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.split() == (["late"] if name in SAYS else [])
    assert "Traceback" not in ended.stderr, ended.stderr[-3000:]
