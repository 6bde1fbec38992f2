"""CORE16: `SystemExit` inside `wait()` ended the loop's thread, and later calls hung."""

from __future__ import annotations

import asyncio

import pytest

from ephemera import blocking
from ephemera.embedded import Valkey


async def _exit() -> None:
    raise SystemExit(3)


async def _exit_in_a_task() -> None:
    await asyncio.create_task(_exit())


@pytest.mark.parametrize("work", [_exit, _exit_in_a_task], ids=["directly", "in a task"])
def test_core16_system_exit_reaches_the_caller_and_the_loop_keeps_running(
    server: Valkey, work: object
) -> None:
    """The caller gets its `SystemExit`; the store answers later calls."""
    with blocking.connect(server.url) as store:
        with pytest.raises(SystemExit) as caught:
            store.wait(work())  # type: ignore[operator]
        assert caught.value.code == 3
        assert store.call("ECHO", "alive") == b"alive"
        with pytest.raises(KeyboardInterrupt):
            store.wait(_interrupt())
        assert store.call("ECHO", "alive") == b"alive"


async def _interrupt() -> None:
    raise KeyboardInterrupt
