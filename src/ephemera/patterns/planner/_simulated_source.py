"""The source of a simulation: users and channels in a few dicts, and a clock that is told the time."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Collection, Mapping

from ephemera.patterns.planner._plans import Facts, Plan
from ephemera.patterns.planner._source import Begun, Chunk, Mode

NOBODY_WAITS = 1 << 62
"""A moment that does not come."""


class User:
    """A simulated user; moments are milliseconds since 1970."""

    __slots__ = (
        "active",
        "back_at",
        "clustered",
        "enqueued",
        "marked_until",
        "oldest",
        "pending",
        "plan",
        "recheck_at",
    )

    def __init__(self, plan: str, start: int) -> None:
        self.plan = plan
        self.pending = 0
        self.oldest = 0  # when the first of `pending` came
        self.clustered, self.active, self.enqueued = start, start, 0
        self.back_at = start  # when they came after having been away
        self.marked_until = 0
        self.recheck_at = NOBODY_WAITS

    def facts(self) -> Facts:
        """What the planner knows of them."""
        return Facts(self.plan, self.pending, self.clustered, self.active, self.enqueued)


class Memory:
    """The source of a simulation: everything about its users, and a clock that it is told."""

    mode: Mode = "simulation"

    def __init__(self, plans: Mapping[str, Plan], mark: int, start: int) -> None:
        self._plans = plans
        self._mark = mark
        self.now = start
        self.users: dict[str, User] = {}
        self.dirty: dict[str, float] = {}
        self.subscribers: dict[str, list[str]] = {}
        self._looks: list[
            tuple[int, str]
        ] = []  # when to look at whom: postponed, or their plan's time is over

    def add(self, name: str, plan: str) -> None:
        """One more user."""
        user = self.users[name] = User(plan, self.now)
        self._look(name, user.clustered + self._plans[plan].every)

    def clustered(self, name: str, at: int) -> None:
        """A run has ended."""
        user = self.users[name]
        user.clustered, user.marked_until, user.recheck_at = at, 0, NOBODY_WAITS
        plan = self._plans[user.plan]
        self._look(name, at + plan.every)
        if user.pending >= plan.novelty:
            self._recheck(name, max(at, user.enqueued + plan.cooldown))

    def touched(self, name: str, at: int) -> None:
        """A user is there; one who was away is looked at."""
        user = self.users[name]
        if at - user.active > self._plans[user.plan].active_within:
            self._recheck(name, at)
            user.back_at = at
        user.active = at

    @property
    def next_look(self) -> int:
        """When somebody is to be looked at though nothing happens."""
        while self._looks and self._out_of_date(*self._looks[0]):
            heapq.heappop(self._looks)
        return self._looks[0][0] if self._looks else NOBODY_WAITS

    def _out_of_date(self, at: int, name: str) -> bool:
        user = self.users[name]
        return at != user.recheck_at and at != user.clustered + self._plans[user.plan].every

    async def begin(self, most: int) -> Begun:
        """The dirty channels, those marked longest ago first."""
        dirty = dict(sorted(self.dirty.items(), key=lambda item: item[1])[:most])
        return Begun(self.now, dirty, len(dirty) < len(self.dirty))

    async def candidates(self, begun: Begun, most: int) -> AsyncGenerator[Chunk, None]:
        """Users to look at, and subscribers of dirty channels."""
        looked: dict[str, Facts] = {}
        while self.next_look <= self.now and len(looked) < most:
            name = heapq.heappop(self._looks)[1]
            looked[name] = self.users[name].facts()
        if looked:
            yield Chunk(looked, [name for name in looked if self.users[name].recheck_at <= self.now])
        names = {name for channel in begun.dirty for name in self.subscribers[channel]}
        yield Chunk({name: self.users[name].facts() for name in names if name not in looked})

    async def postpone(self, waits: Mapping[str, int], quiet: Collection[str], now: int) -> None:
        """Look at users again at a moment, unless sooner; and no more at the quiet."""
        for name in quiet:
            self.users[name].recheck_at = NOBODY_WAITS
        for name, at in waits.items():
            if not now < self.users[name].recheck_at <= at:
                self._recheck(name, at)

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users who are not marked."""
        free = {name for name in users if self.users[name].marked_until <= now}
        for name in free:
            user = self.users[name]
            user.enqueued, user.marked_until = now, now + self._mark
            self._recheck(name, user.marked_until)
        return free

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Take claims back."""
        for name, before in enqueued_before.items():
            self.users[name].enqueued, self.users[name].marked_until = before, 0
            self._recheck(name, now)

    async def settle(self, begun: Begun) -> None:
        """Nothing happens during a tick here."""
        for channel in begun.dirty:
            del self.dirty[channel]

    def _recheck(self, name: str, at: int) -> None:
        self.users[name].recheck_at = at
        self._look(name, at)

    def _look(self, name: str, at: int) -> None:
        heapq.heappush(self._looks, (at, name))
