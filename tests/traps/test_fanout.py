"""Trap S15: one lifetime for all connections of a user keeps those of a dead process listed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

from ephemera import connect
from tests.patterns.fanning import BRIEF, CATALOGUE, Note

if TYPE_CHECKING:
    from ephemera.embedded import Valkey

_LIFE = 3000  # milliseconds, as BRIEF has it


async def test_s15_a_dead_process_is_not_kept_alive_by_others(server: Valkey, key: str) -> None:
    """A set that anybody's heartbeat renews lists a killed process for ever; ours for one lifetime."""
    naive = f"naive:{key}"
    command = [sys.executable, "-m", "tests.patterns.fanout_process", server.url, key, "2"]
    async with connect(server.url, CATALOGUE) as store, store[BRIEF].connect(user_id=key) as connection:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as pod:
            assert pod.stdout is not None
            for _ in range(2):
                line = await asyncio.to_thread(pod.stdout.readline)
                assert line == b"connected\n"
            assert await store[BRIEF].push(Note("to all"), user_id=key) == 3
            assert b"to all" in await asyncio.to_thread(pod.stdout.readline)
            await store.call("SADD", naive, "dead-pod:1", "living-pod:1")
            pod.kill()

        loop = asyncio.get_running_loop()
        killed = loop.time()
        while loop.time() < killed + 2.5 * _LIFE / 1000:
            await store.call("PEXPIRE", naive, _LIFE)  # the heartbeat of the living one
            await asyncio.sleep(_LIFE / 3000)
        assert await store.call("SISMEMBER", naive, "dead-pod:1") == 1
        await store.call("DEL", naive)

        (left,) = await store[BRIEF].connections(user_id=key)
        assert f"{left.server}:{left.connection}" == connection.id
        assert await store[BRIEF].push(Note("to the living"), user_id=key) == 1
        assert await store[BRIEF.space].size(user_id=key) == 1
