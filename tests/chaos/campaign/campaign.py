"""One campaign: servers, processes, load and faults, then calm; then what was acknowledged is looked for.

    outcome = await Campaign(seed=7, seconds=60, systems=SYSTEMS).run()

The world begins healthy: every process is ready and every account is made before the first fault. Faults
come by the schedule; processes that die are started again at once. At the end all lines are healed, the
load finishes what it has begun, and each system's checker waits until what was promised to come has come,
or says it did not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.chaos.campaign import SYSTEMS
from tests.chaos.campaign.injuries import inflict
from tests.chaos.campaign.ledger import Ledger
from tests.chaos.campaign.load import LOADS
from tests.chaos.campaign.load.driving import Load
from tests.chaos.campaign.processes import Member
from tests.chaos.campaign.proxy import Network
from tests.chaos.campaign.schedule import BRISK, USUAL, Fault, Pace, schedule
from tests.chaos.campaign.servers import Servers

_STARTS_WITHIN = 120.0  # seconds, on a busy machine
_WATCHED_EVERY = 0.1
_TELLS_WITHIN = 2.0  # seconds from a stall to its line in the log, on a busy machine
_STARTS = 5  # times that a process may fail to start in a row
_BRIEF = 120.0
"""Campaigns shorter than this are brisk, and have one process where two are not the point."""


class Outcome(NamedTuple):
    """What came of a campaign."""

    seed: int
    seconds: float
    systems: tuple[str, ...]
    faults: list[Fault]
    ledger: Ledger
    restarts: int


@dataclass
class World:
    """What faults and load work on."""

    servers: Servers
    network: Network
    ledger: Ledger
    seed: int
    members: dict[str, Member] = field(default_factory=dict)
    trouble: str = ""
    _down: dict[str, int] = field(default_factory=dict)

    def mark(self) -> None:
        """What an operator does when a cache has lost everything: mark it again for who wants that."""
        self.servers.mark("scripture")

    def kill(self, name: str, *, group: bool) -> None:
        """SIGKILL to a member."""
        self.is_gone(name)
        self.members[name].kill(group=group)

    def is_gone(self, name: str) -> None:
        """A member has ended, or is about to; it is disturbed until it is ready again."""
        if name not in self._down:
            self._down[name] = self.ledger.timeline.begin(name)

    def is_back(self, name: str) -> None:
        """A member is ready again."""
        if name in self._down:
            self.ledger.timeline.end(self._down.pop(name))

    @property
    def down(self) -> set[str]:
        """Members that have ended and are not ready again yet."""
        return set(self._down)


class Campaign:
    """A campaign to be run once."""

    def __init__(
        self,
        seed: int,
        seconds: float,
        systems: Sequence[str] = SYSTEMS,
        only: Sequence[str] = (),
        tell: Callable[[str], None] = lambda _: None,
        afterwards: Callable[[list[Load]], Awaitable[None]] | None = None,
    ) -> None:
        self._seed, self._seconds = seed, seconds
        self._systems = tuple(systems)
        self._only = tuple(only)
        self._tell = tell
        self._afterwards = afterwards  # what to do with the loads while their servers are still there
        self.brief = seconds < _BRIEF
        self._pace: Pace = BRISK if self.brief else USUAL
        self.restarts = 0

    async def run(self) -> Outcome:
        """Run it; nothing of it is left afterwards."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ephemera-faults-")))
            network = stack.enter_context(Network())
            servers = stack.enter_context(Servers(network))
            world = World(servers, network, Ledger(), self._seed)
            world.mark()
            loads = [
                await stack.enter_async_context(self._load(name, world, folder)) for name in self._systems
            ]
            faults = schedule(self._seed, self._seconds, list(world.members), self._only, self._pace)
            stack.callback(_end_all, world)
            await self._begin(world, loads)
            watching = asyncio.create_task(self._watch(world))
            try:
                await self._storm(world, loads, faults)
                await self._calm(world)
                await self._check(loads)
                if self._afterwards is not None:
                    await self._afterwards(loads)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            return Outcome(self._seed, self._seconds, self._systems, faults, world.ledger, self.restarts)

    def _load(self, name: str, world: World, folder: Path) -> Load:
        load = LOADS[name](world, folder, brief=self.brief)
        world.members.update((member.name, member) for member in load.members)
        return load

    async def _begin(self, world: World, loads: list[Load]) -> None:
        for member in world.members.values():
            member.start()
        await self._ready(world, "the processes")
        self._tell(f"{len(world.members)} processes are ready")
        await asyncio.gather(*(load.prepare() for load in loads))
        self._tell("accounts are made; the load begins")

    async def _storm(self, world: World, loads: list[Load], faults: list[Fault]) -> None:
        """The load, with faults; each load ends when it has finished what it began."""
        over = asyncio.Event()
        driving = [asyncio.create_task(load.drive(over)) for load in loads]
        begun = healed = time.monotonic()
        for number, fault in enumerate(faults, 1):
            await asyncio.sleep(max(begun + fault.at, healed) - time.monotonic())
            passed = time.monotonic() - begun
            done = sum(world.ledger.acknowledged.values())
            self._tell(f"{passed:6.1f} s  {number}/{len(faults)}  {fault}  ({done} acknowledged)")
            await inflict(world, fault)
            healed = time.monotonic() + self._pace.healing[0]
        await asyncio.sleep(max(0.0, begun + self._seconds - time.monotonic()))
        over.set()
        await asyncio.gather(*driving)

    async def _calm(self, world: World) -> None:
        self._tell("the faults are over; waiting for what was promised")
        for line in (world.servers.cache_line, world.servers.sql_line, *world.servers.queue.lines):
            world.network.heal(line)
        for member in world.members.values():
            member.resume()
            member.jump(0.0)
        await self._ready(world, "all processes after the faults")

    async def _check(self, loads: list[Load]) -> None:
        await asyncio.gather(*(load.settle() for load in loads))
        for load in loads:
            await load.check()

    async def _ready(self, world: World, what: str) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN
        waiting = list(world.members.values())
        while waiting:
            ready = await asyncio.gather(*(asyncio.to_thread(member.is_ready) for member in waiting))
            waiting = [member for member, is_ready in zip(waiting, ready, strict=True) if not is_ready]
            if time.monotonic() > deadline:
                said = "\n".join(f"{member.name}: {member.last_words()}" for member in waiting)
                raise TimeoutError(f"{what} were not ready within {_STARTS_WITHIN:.0f} s:\n{said}")
            await asyncio.sleep(_WATCHED_EVERY)

    async def _watch(self, world: World) -> None:
        """Start again what has ended, and say so when nobody had killed it; note what stalls."""
        failures: Counter[str] = Counter()
        while True:
            for member in world.members.values():
                if member.has_stalled():
                    now = time.monotonic()
                    world.ledger.timeline.note(f"stall:{member.name}", now - _TELLS_WITHIN, now)
                if member.exit_code is not None:
                    self._judge_end(world, member, failures)
                    world.is_gone(member.name)
                    member.end()  # what may be left of its group
                    member.start()
                    self.restarts += 1
            for name in world.down:
                if await asyncio.to_thread(world.members[name].is_ready):
                    failures[name] = 0
                    world.is_back(name)
            await asyncio.sleep(_WATCHED_EVERY)

    def _judge_end(self, world: World, member: Member, failures: Counter[str]) -> None:
        """A process may fail to start while its servers are away, some times; it may not end later on."""
        if member.killed:
            return
        failures[member.name] += 1
        if member.name not in world.down or failures[member.name] > _STARTS:
            what = f"{member.name} ended by itself with {member.exit_code}: {member.last_words()}"
            world.ledger.violated(member.system, what)


def _end_all(world: World) -> None:
    for member in world.members.values():
        member.end()
