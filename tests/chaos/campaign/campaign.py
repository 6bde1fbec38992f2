"""One campaign: servers, processes, load and faults, then recovery; then everything acknowledged is verified.

    outcome = await Campaign(seed=7, seconds=60, systems=SYSTEMS).run()

Everything is healthy at the start: every process is ready and every account is created before the first
fault. Faults follow the schedule; processes that die are restarted at once. At the end all lines are healed,
the load finishes what it has begun, and the checker of each service waits until the eventual guarantees
hold, or reports that they do not.
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
from tests.chaos.campaign.faults import inject
from tests.chaos.campaign.ledger import Ledger
from tests.chaos.campaign.load import LOADS
from tests.chaos.campaign.load.service_load import Load
from tests.chaos.campaign.processes import Member
from tests.chaos.campaign.proxy import Network
from tests.chaos.campaign.schedule import FAST, NORMAL, Fault, Pace, schedule
from tests.chaos.campaign.servers import Servers

_START_TIMEOUT = 120.0  # seconds, on a busy machine
_WATCH_INTERVAL = 0.1
_STALL_LOG_DELAY = 2.0  # seconds from a stall to its line in the log, on a busy machine
_MAX_FAILED_STARTS = 5  # in a row, per process
_BRIEF = 120.0
"""Campaigns shorter than this, in seconds, have shorter faults and only the processes they need."""


class Outcome(NamedTuple):
    """The result of a campaign."""

    seed: int
    seconds: float
    systems: tuple[str, ...]
    faults: list[Fault]
    ledger: Ledger
    restarts: int


@dataclass
class World:
    """The servers and processes that faults and loads work on."""

    servers: Servers
    network: Network
    ledger: Ledger
    seed: int
    members: dict[str, Member] = field(default_factory=dict)
    trouble: str = ""
    _down: dict[str, int] = field(default_factory=dict)

    def mark(self) -> None:
        """Mark a cache that lost everything again, as an operator does."""
        self.servers.mark("scripture")

    def kill(self, name: str, *, group: bool) -> None:
        """Send SIGKILL to a process."""
        self.record_end(name)
        self.members[name].kill(group=group)

    def record_end(self, name: str) -> None:
        """Record that a process has ended; it is disturbed until it is ready again."""
        if name not in self._down:
            self._down[name] = self.ledger.timeline.begin(name)

    def record_ready(self, name: str) -> None:
        """Record that a process is ready again."""
        if name in self._down:
            self.ledger.timeline.end(self._down.pop(name))

    @property
    def down(self) -> set[str]:
        """Processes that have ended and are not ready again yet."""
        return set(self._down)


class Campaign:
    """A campaign; run it once."""

    def __init__(
        self,
        seed: int,
        seconds: float,
        systems: Sequence[str] = SYSTEMS,
        only: Sequence[str] = (),
        log: Callable[[str], None] = lambda _: None,
        afterwards: Callable[[list[Load]], Awaitable[None]] | None = None,
    ) -> None:
        self._seed, self._seconds = seed, seconds
        self._systems = tuple(systems)
        self._only = tuple(only)
        self._log = log
        self._afterwards = afterwards  # called with the loads while their servers are still up
        self.brief = seconds < _BRIEF
        self._pace: Pace = FAST if self.brief else NORMAL
        self.restarts = 0

    async def run(self) -> Outcome:
        """Run it, and clean up."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ephemera-chaos-")))
            network = stack.enter_context(Network())
            servers = stack.enter_context(Servers(network))
            world = World(servers, network, Ledger(), self._seed)
            world.mark()
            loads = [
                await stack.enter_async_context(self._load(name, world, folder)) for name in self._systems
            ]
            faults = schedule(self._seed, self._seconds, list(world.members), self._only, self._pace)
            stack.callback(_end_all, world)
            await self._start(world, loads)
            watching = asyncio.create_task(self._watch(world))
            try:
                await self._run_faults(world, loads, faults)
                await self._recover(world)
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

    async def _start(self, world: World, loads: list[Load]) -> None:
        for member in world.members.values():
            member.start()
        await self._ready(world, "the processes")
        self._log(f"{len(world.members)} processes are ready")
        await asyncio.gather(*(load.prepare() for load in loads))
        self._log("accounts are created; the load begins")

    async def _run_faults(self, world: World, loads: list[Load], faults: list[Fault]) -> None:
        """Drive the loads and inject the faults; each load finishes what it began."""
        over = asyncio.Event()
        drivers = [asyncio.create_task(load.drive(over)) for load in loads]
        begun = healed = time.monotonic()
        for number, fault in enumerate(faults, 1):
            await asyncio.sleep(max(begun + fault.at, healed) - time.monotonic())
            passed = time.monotonic() - begun
            done = sum(world.ledger.acknowledged.values())
            self._log(f"{passed:6.1f} s  {number}/{len(faults)}  {fault}  ({done} acknowledged)")
            await inject(world, fault)
            healed = time.monotonic() + self._pace.healing[0]
        await asyncio.sleep(max(0.0, begun + self._seconds - time.monotonic()))
        over.set()
        await asyncio.gather(*drivers)

    async def _recover(self, world: World) -> None:
        self._log("the faults are over; waiting for the guarantees to hold")
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
        deadline = time.monotonic() + _START_TIMEOUT
        waiting = list(world.members.values())
        while waiting:
            ready = await asyncio.gather(*(asyncio.to_thread(member.is_ready) for member in waiting))
            waiting = [member for member, is_ready in zip(waiting, ready, strict=True) if not is_ready]
            if time.monotonic() > deadline:
                said = "\n".join(f"{member.name}: {member.last_words()}" for member in waiting)
                raise TimeoutError(f"{what} were not ready within {_START_TIMEOUT:.0f} s:\n{said}")
            await asyncio.sleep(_WATCH_INTERVAL)

    async def _watch(self, world: World) -> None:
        """Restart processes that ended, judge those that were not killed, and record stalls."""
        failures: Counter[str] = Counter()
        while True:
            for member in world.members.values():
                if member.has_stalled():
                    now = time.monotonic()
                    world.ledger.timeline.note(f"stall:{member.name}", now - _STALL_LOG_DELAY, now)
                if member.exit_code is not None:
                    self._judge_end(world, member, failures)
                    world.record_end(member.name)
                    member.end()  # the rest of its process group
                    member.start()
                    self.restarts += 1
            for name in world.down:
                if await asyncio.to_thread(world.members[name].is_ready):
                    failures[name] = 0
                    world.record_ready(name)
            await asyncio.sleep(_WATCH_INTERVAL)

    def _judge_end(self, world: World, member: Member, failures: Counter[str]) -> None:
        """A process may fail to start a few times while its servers are down; it may not end later."""
        if member.killed:
            return
        failures[member.name] += 1
        if member.name not in world.down or failures[member.name] > _MAX_FAILED_STARTS:
            what = f"{member.name} ended by itself with {member.exit_code}: {member.last_words()}"
            world.ledger.violated(member.system, what)


def _end_all(world: World) -> None:
    for member in world.members.values():
        member.end()
