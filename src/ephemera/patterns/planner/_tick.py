"""One tick: who is due goes to the enqueue port, and only then are the channels done with.

The order is what loses nobody. A user is claimed (marked in SQL with a time at which to look again, and in
Redis), then handed over, then the channels are settled; a tick that dies anywhere leaves its channels dirty,
or its users to be looked at again. Users who are due and cannot be handed over now (cooldown, marked, more
than a tick takes) are postponed in SQL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from ephemera.patterns.planner._plans import Plan, Task, decide
from ephemera.patterns.planner._source import (
    Begun,
    Chunk,
    Mode,
    Source,
)

Enqueue: TypeAlias = Callable[[Sequence[Task]], Awaitable[None]]
"""The port: takes tasks, one a user, and returns when a queue has them."""


class Limits(msgspec.Struct, frozen=True):
    """What one tick takes at most."""

    dirty_channels: int
    enqueued: int
    mark: int  # milliseconds for which a user is not handed over again


class Tick(msgspec.Struct):
    """What a tick did."""

    mode: Mode
    at: int = 0  # milliseconds since 1970, by the server
    seconds: float = 0.0
    dirty: int = 0  # channels looked at
    examined: int = 0  # users looked at
    candidates: int = 0  # of them, due
    enqueued: int = 0
    postponed: int = 0
    full: bool = False  # more was there than a tick takes; the next one goes on
    led_by_another: bool = False  # nothing was done: another process is at it
    problem: str = ""  # why Redis was not used


class Ticking:
    """The ticks of one planner: its plans, limits and port."""

    def __init__(self, plans: Mapping[str, Plan], limits: Limits, enqueue: Enqueue) -> None:
        self._plans = plans
        self._limits = limits
        self._enqueue = enqueue

    async def run(self, source: Source) -> Tick:
        """One tick on a source."""
        begun = await source.begin(self._limits.dirty_channels)
        tick = Tick(source.mode, begun.now, dirty=len(begun.dirty), full=begun.full)
        async with aclosing(source.candidates(begun, self._limits.enqueued)) as chunks:
            async for chunk in chunks:
                await self._hand_over(source, begun, chunk, tick)
        await source.settle(begun)
        return tick

    async def _hand_over(self, source: Source, begun: Begun, chunk: Chunk, tick: Tick) -> None:
        due, waits, quiet = self._sort(chunk, begun.now)
        tick.examined += len(chunk.facts)
        tick.candidates += len(due)
        room = self._limits.enqueued - tick.enqueued
        while len(due) > room:
            waits[due.popitem()[0]] = begun.now
            tick.full = True
        claimed = await source.claim(due, begun.now) if due else set()
        waits.update((user, begun.now + self._limits.mark) for user in due if user not in claimed)
        if waits or quiet:
            await source.postpone(waits, quiet, begun.now)
        tick.postponed += len(waits)
        if claimed:
            try:
                await self._enqueue([task for user, task in due.items() if user in claimed])
            except BaseException:
                await source.release({u: chunk.facts[u].last_enqueued_at for u in claimed}, begun.now)
                raise
            tick.enqueued += len(claimed)

    def _sort(self, chunk: Chunk, now: int) -> tuple[dict[str, Task], dict[str, int], list[str]]:
        """Those who are due, those who wait and until when, and those who need no further look."""
        due: dict[str, Task] = {}
        waits: dict[str, int] = {}
        for user, facts in chunk.facts.items():
            plan = self._plans.get(facts.plan)
            reason, look_at = decide(plan, facts, now) if plan else (None, 0)
            if reason:
                due[user] = Task(user, reason, facts.pending)
            elif look_at:
                waits[user] = look_at
        quiet = [user for user in chunk.rechecked if user not in due and user not in waits]
        return due, waits, quiet
