"""Trap S15: one lifetime for all connections of a user keeps those of a dead process listed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import datetime

from ephemera import connect
from ephemera.embedded import Valkey
from tests.patterns.fanout_fixtures import BRIEF, CATALOGUE, Note

_LIFETIME = 60_000  # milliseconds of the naive set; no pause of the machine is as long


async def test_s15_a_dead_process_is_not_kept_alive_by_others(server: Valkey, key: str) -> None:
    """A set that any heartbeat renews lists a killed process forever; ours for one lifetime."""
    naive = f"naive:{key}"
    command = [sys.executable, "-m", "tests.patterns.fanout_process", server.url, key, "2"]
    async with connect(server.url, CATALOGUE) as store, store[BRIEF].connect(user_id=key) as connection:

        async def deadlines() -> dict[str, datetime]:
            listed = await store[BRIEF].connections(user_id=key)
            return {f"{each.server}:{each.connection}": each.until for each in listed}

        async def heartbeat_of_the_living() -> int:
            await store.call("PEXPIRE", naive, _LIFETIME)
            return int(await store.call("PEXPIRETIME", naive))

        async def only_ours_is_reached() -> bool:
            return (
                list(await deadlines()) == [connection.id]
                and await store[BRIEF].push(Note("to the living"), user_id=key) == 1
                and await store[BRIEF.keyspace].size(user_id=key) == 1
            )

        with subprocess.Popen(command, stdout=subprocess.PIPE) as pod:
            assert pod.stdout is not None
            try:
                for _ in range(2):
                    line = await asyncio.to_thread(pod.stdout.readline)
                    assert line == b"connected\n"
                async with asyncio.timeout(60):  # one that was delayed for a lifetime is listed again
                    while await store[BRIEF].push(Note("to all"), user_id=key) != 3:
                        await asyncio.sleep(0.05)
                assert await asyncio.to_thread(any, (b"to all" in line for line in pod.stdout))
                await store.call("SADD", naive, "dead-pod:1", "living-pod:1")
            finally:
                pod.kill()

        end = await heartbeat_of_the_living()
        last = await deadlines()
        async with asyncio.timeout(60):
            while not await only_ours_is_reached():
                dead = {name: until for name, until in (await deadlines()).items() if name != connection.id}
                assert dead.items() <= last.items()  # no other heartbeat changes them
                await asyncio.sleep(0.05)
                before, end = end, await heartbeat_of_the_living()
                assert end > before  # for all members, dead ones included
        assert await store.call("SISMEMBER", naive, "dead-pod:1") == 1
        await store.call("DEL", naive)
