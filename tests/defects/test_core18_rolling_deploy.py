"""CORE18: two versions side by side as processes, restarted one by one under load, forth and back."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey
from tests.defects.two_versions import KINDS, Name, Process

ITEMS = 10  # cached values
USERS = 4  # at the same time


class Load:
    """Users who ask whatever processes there are, all at the same time, and what must hold of the answers."""

    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes
        self.tokens: dict[tuple[str, str], str] = {}
        self.published: set[int] = set()
        self.enqueued: dict[str, int] = {}
        self.rounds = [0] * USERS
        self.stopping = False
        self._numbers = count(1)

    async def use(self, user: int) -> None:
        """Ask until it is stopped."""
        while not self.stopping:
            await self._round(user)
            self.rounds[user] += 1

    async def settle(self, rounds: int) -> None:
        """Wait until each user has made this many more rounds."""
        wanted = min(self.rounds) + rounds
        async with asyncio.timeout(120):
            while min(self.rounds) < wanted:
                await asyncio.sleep(0.01)

    async def _round(self, user: int) -> None:
        """One request of each kind, each to the next process."""
        ours = [(kind, f"user-{user}-{self.rounds[user]}") for kind in KINDS]
        for kind, name in ours:
            self.tokens[kind, name] = await self._ask("sign_in", kind, name)
        known = [each for each in self.tokens if each[1].startswith(f"user-{user}-")]
        for kind, name in known[-20:]:
            assert await self._ask("who", kind, self.tokens[kind, name]) == name, "signed out"
        oldest = known[0]
        rotated = await self._ask("rotate", oldest[0], self.tokens[oldest])
        assert rotated is not None, "signed out"
        self.tokens[oldest] = rotated
        assert await asyncio.gather(*(self._ask("item", n) for n in range(ITEMS))) == [*range(ITEMS)]
        zoom, who = self.rounds[user] + 2, f"user-{user}"
        assert (await self._ask("change_look", who, {"zoom": zoom}))["zoom"] == zoom
        assert (await self._ask("look", who))["zoom"] == zoom, "reset"
        number = next(self._numbers)
        await self._ask("publish", number)
        self.published.add(number)
        self.enqueued[await self._ask("enqueue", number)] = number

    async def _ask(self, command: str, *arguments: object) -> Any:
        process = self.processes[next(self._numbers) % len(self.processes)]
        return await process.ask(command, *arguments)


async def roll(server: Valkey, sql: str, versions: list[Name], rounds: int) -> None:
    """Replace two old processes with each of these versions, in turn, under the load of some users."""
    started: list[Process] = []

    async def start(name: Name) -> Process:
        process = Process(name, server.url, sql)
        started.append(process)
        await process.ready()
        return process

    try:
        load = Load([await start("old"), await start("old")])
        async with asyncio.TaskGroup() as users:
            for user in range(USERS):
                users.create_task(load.use(user))
            for version in versions:
                for place in range(2):
                    replaced, load.processes[place] = load.processes[place], await start(version)
                    await load.settle(rounds)
                    await replaced.stop()
                    if version == "new" and place == 0:
                        await load.processes[0].ask("change_look", "user-0", {"theme": "dark"})
            load.stopping = True
        await _check(load)
    finally:
        for process in started:
            await process.kill()


async def _check(load: Load) -> None:
    """Nothing was lost."""
    last = load.processes[0]
    async with asyncio.timeout(120):
        while True:
            found = await last.ask("summary")
            done = {job: result for job, (state, result) in found["jobs"].items() if state == "done"}
            if done.keys() >= load.enqueued.keys() and load.published <= {*found["handled"]}:
                break
            await asyncio.sleep(0.05)
    assert done == load.enqueued
    assert found["dead events"] == 0
    for (kind, user), token in load.tokens.items():
        assert await last.ask("who", kind, token) == user
    for n in range(ITEMS):
        assert await last.ask("loads", n) <= 2, "loaded more than once by a version"
    if last.name == "new":
        assert (await last.ask("look", "user-0"))["theme"] == "dark"


@pytest.mark.standalone("its processes connect to one server")
async def test_core18_a_rolling_deploy_and_a_rollback_lose_nothing(
    server: Valkey, postgres: Postgres
) -> None:
    """No user is signed out, preferences stay, values are not loaded again, no event and no job is lost."""
    await roll(server, postgres.database("core18_roll"), ["new", "old"], rounds=2)
