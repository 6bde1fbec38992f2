"""What a consumer does beside handling: keeps what it has, takes over what others left, and trims.

- Events in hand are spoken for every quarter of a lease: a long handler keeps its event, and one whose
  process died, or hangs, loses it after a lease.
- The pending list is looked through by XAUTOCLAIM, following its cursor to the end: when a retry of our own
  is due, and every quarter of a lease for what others left.
- The stream is trimmed once a second while events are acknowledged.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from contextlib import suppress
from time import monotonic

from ephemera.errors import EphemeraError, ServerError
from ephemera.patterns.events._groups import GONE, make_group_again
from ephemera.patterns.events._members import Member
from ephemera.patterns.events._outcome import Counts, Outcomes
from ephemera.patterns.events._worker import Work

log = logging.getLogger("ephemera.events")

_TICK = 1.0  # seconds
_NO_ROOM = 0.05  # seconds until a look that stopped for want of room goes on
_START = b"0-0"


class Upkeep:
    """The upkeep of one consumer."""

    def __init__(self, member: Member, work: Work, outcomes: Outcomes, counts: Counts) -> None:
        self.claiming = True
        """Whether events are taken over; not any more while the consumer stops."""
        self._member = member
        self._work = work
        self._outcomes = outcomes
        self._counts = counts
        self._lease = member.lease / 1000
        self._keeps_at = monotonic() + self._lease / 4
        self._looks_at = monotonic()
        self._cursor = _START
        self._looking = False
        self._trimmed = 0

    async def run(self) -> None:
        """Go on until cancelled; a server that is away is waited for."""
        while True:
            try:
                await self._once()
            except ServerError as error:
                await self._refused(error)
            except EphemeraError as error:
                log.debug("%r: upkeep waits for the server: %s", self._member.key, error)
            except Exception:
                log.exception("%r: the upkeep of %r failed", self._member.key, self._member.group)
            await self._rest(self._next())

    async def _rest(self, until: float) -> None:
        """Wait until there is something to do, or a retry is due before that."""
        self._outcomes.looks_at = until
        self._outcomes.sooner.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, until - monotonic())):
                await self._outcomes.sooner.wait()

    async def _once(self) -> None:
        now = monotonic()
        if now >= self._keeps_at:
            await self._member.keep(self._work.in_hand())
            self._keeps_at = now + self._lease / 4
        self._outcomes.flush()
        if self.claiming:
            await self._look(now)
        if self._counts.acked > self._trimmed:
            self._trimmed = self._counts.acked
            await self._member.trim()

    async def _look(self, now: float) -> None:
        retries = self._outcomes.retries
        if now >= self._looks_at:
            self._looking = True
            self._looks_at = now + self._lease / 4 * random.uniform(0.75, 1.25)
            await self._member.forget_the_gone()
        while retries and retries[0] <= now:
            heapq.heappop(retries)
            self._looking = True
        while self._looking and self.claiming and (room := self._work.room) > 0:
            self._cursor, entries = await self._member.claim(self._cursor, room)
            self._work.take_over(entries)
            self._looking = self._cursor != _START

    def _next(self) -> float:
        """When there is something to do again."""
        now = monotonic()
        if self._looking:
            return now + _NO_ROOM
        due = self._outcomes.retries[:1]
        return min(now + _TICK, self._keeps_at, self._looks_at, *due)

    async def _refused(self, error: ServerError) -> None:
        self._cursor, self._looking = _START, False
        if error.code not in GONE:
            log.error("%r: the upkeep of %r failed: %s", self._member.key, self._member.group, error)
            return
        try:
            await make_group_again(self._member.client, self._member.key, self._member.group)
        except EphemeraError as problem:
            log.warning("%r: the group %r cannot be made: %s", self._member.key, self._member.group, problem)
