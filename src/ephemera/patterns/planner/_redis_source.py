"""Candidates out of Redis: two trips for thousands of users, and SQL only for what SQL alone knows.

A tick asks SQL once each for the time, for who is to be looked at again, for who is overdue, for the seqs
of the dirty channels and for their subscribers (a stream: `truth.subscribers`). Then, for every few thousand
users: their states (one trip), the high-water marks of those who are active (one trip), and the seqs of
channels not met before in this tick (at most one). The number of trips does not depend on how many channels
a user has.

What is not kept here, or is seen to be incomplete, is counted by SQL, for all such users of a chunk at once;
some of it is then kept, a bounded number in each tick, so that a lost Redis is filled lazily.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.planner._ledger import Ledger, State
from ephemera.patterns.planner._plans import Facts
from ephemera.patterns.planner._queries import Truth
from ephemera.patterns.planner._source import Begun, Chunk, Mode
from ephemera.patterns.planner._working_set import Copies, facts_of

if TYPE_CHECKING:
    from ephemera.patterns.planner._declaration import Planner, UserState

_LATE = 60_000  # milliseconds that a publisher may take from its commit to its note in Redis
_MOST_KEPT = 10_000  # users whose copies one tick makes


class RedisSource:
    """Reads copies in Redis, with the truth behind them."""

    mode: Mode = "redis"

    def __init__(self, declared: Planner, copies: Copies, truth: Truth, ledger: Ledger) -> None:
        self._declared = declared
        self._copies = copies
        self._truth = truth
        self._ledger = ledger
        self._seqs: dict[bytes, int] = {}
        self._may_keep = 0
        self._connects = 0
        self.distrusted = True
        """Whether the dirty set may lack channels: at first, and whenever Redis was away."""

    async def begin(self, most: int) -> Begun:
        """The time, and the dirty channels, rebuilt from SQL when they may be incomplete."""
        state = await self._ledger.state()
        if self._connects != self._copies.connects:
            # Between two ticks, too: a master that died may have taken the last marks with it.
            self.distrusted = True
        if self.distrusted or state.now - state.swept_at >= self._declared.sweep_every:
            await self.rebuild(state)
        dirty = await self._copies.dirty(most)
        self._seqs = {name.encode(): seq for name, seq in (await self._truth.seqs(list(dirty))).items()}
        self._may_keep = _MOST_KEPT
        return Begun(state.now, dirty, len(dirty) == most)

    async def rebuild(self, state: State) -> None:
        """Mark every channel as dirty that had an insight which may not have been looked at."""
        self._connects = self._copies.connects
        since = min(state.examined_at, state.swept_at) - _LATE
        async with aclosing(self._truth.changed_since(since)) as chunks:
            async for channels in chunks:
                await self._copies.note(channels)
        await self._ledger.move_state(swept_at=state.now)
        self.distrusted = False

    async def candidates(self, begun: Begun, most: int) -> AsyncGenerator[Chunk, None]:
        """Users to look at again, users whose time is over, and subscribers of dirty channels."""
        rechecked = await self._truth.rechecks(begun.now, most)
        users = dict.fromkeys([*rechecked, *await self._truth.overdue(begun.now, most)], 0)
        if users:
            yield Chunk(await self._facts(users, frozenset(), begun.now), rechecked)
        if begun.dirty:
            dirty = frozenset(name.encode() for name in begun.dirty)
            async with aclosing(self._truth.subscribers(list(begun.dirty))) as chunks:
                async for subscribers in chunks:
                    theirs = {user: count for user, count in subscribers.items() if user not in users}
                    yield Chunk(await self._facts(theirs, dirty, begun.now))

    async def _facts(self, users: Mapping[str, int], dirty: frozenset[bytes], now: int) -> dict[str, Facts]:
        """What is known of users, each with how many of the dirty channels are theirs."""
        found: dict[str, Facts] = {}
        plans, names = self._declared.plans, list(users)
        cold: dict[str, UserState | None] = {}  # to be counted by SQL
        active: dict[str, UserState] = {}
        for user, state in zip(names, await self._copies.users(names), strict=True):
            plan = None if state is None else plans.get(state.plan)
            if state is None or plan is None:
                cold[user] = None
            elif now - state.last_active_at <= plan.active_within:
                active[user] = state
        marks = await self._copies.marks(list(active))
        await self._meet(marks)
        seq_of, met = self._seqs.__getitem__, dirty.intersection
        for (user, state), seqs in zip(active.items(), marks, strict=True):
            if not seqs or len(met(seqs)) < users[user]:
                cold[user] = state  # there is a subscription that the copy has not heard of
                continue
            try:
                pending = sum(map(seq_of, seqs)) - sum(map(int, seqs.values()))
            except ValueError:  # somebody else wrote to it
                cold[user] = state
            else:
                found[user] = facts_of(state, pending)
        if cold:
            found |= await self._ask_sql(cold)
        return found

    async def _meet(self, marks: Sequence[Mapping[bytes, bytes]]) -> None:
        """Know the seqs of all channels that are in these marks."""
        unknown = set().union(*marks).difference(self._seqs)
        if unknown:
            self._seqs |= await self._copies.seqs(unknown)
            missing = [name.decode() for name in unknown if name not in self._seqs]
            if missing:
                seqs = await self._truth.seqs(missing)
                await self._copies.raise_channels(seqs)
                self._seqs |= {name.encode(): seqs.get(name, 0) for name in missing}

    async def _ask_sql(self, users: Mapping[str, UserState | None]) -> dict[str, Facts]:
        """Count by SQL, and keep what was found for some; a state that is kept knows more of the user."""
        rows = await self._truth.users(users)
        keeping = list(rows)[: self._may_keep]
        self._may_keep -= len(keeping)
        if keeping:
            marks = await self._truth.marks(keeping)
            await self._copies.keep({user: rows[user] for user in keeping if not users[user]}, marks)
        return {
            user: facts_of(state, row.facts.pending) if (state := users[user]) else row.facts
            for user, row in rows.items()
        }

    async def postpone(self, waits: Mapping[str, int], quiet: Collection[str], now: int) -> None:
        """SQL remembers who is to be looked at again."""
        await self._ledger.postpone(waits, quiet, now)

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Set the marks: SQL decides, and Redis follows.

        A mark in Redis decides nothing: one that a master took back in dying, or a worker could not remove,
        would keep its user waiting until it ends.
        """
        claimed = await self._ledger.claim(users, now)
        with suppress(ConnectionFailed, ServerError):  # they are claimed, so they must be handed over
            await self._copies.handed_over(claimed, now)
        return claimed

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Take claims back, in SQL first."""
        await self._ledger.release(enqueued_before, now)
        await self._copies.unmark(enqueued_before)
        for user, before in enqueued_before.items():
            await self._copies.stamp([user], last_enqueued_at=before)

    async def settle(self, begun: Begun) -> None:
        """Remove the channels that were not marked again; SQL hears how far this planner has come."""
        await self._copies.settle(begun.dirty)
        if not begun.full:
            await self._ledger.move_state(examined_at=begun.now)
