"""What a tick asks of where it reads from: Redis with SQL behind it, SQL alone, or a simulation's memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from ephemera.patterns.planner._plans import Facts

Mode: TypeAlias = Literal["redis", "sql", "simulation"]


class Begun(NamedTuple):
    """The start of a tick: its moment, and the channels to look at, each with the mark it had then."""

    now: int  # milliseconds since 1970, by the server that has the truth
    dirty: Mapping[str, float]
    full: bool  # there are more dirty channels than a tick takes


class Chunk(NamedTuple):
    """Some users and what is known of them."""

    facts: Mapping[str, Facts]
    rechecked: Collection[str] = ()  # those who were to be looked at again by now


class Source(Protocol):
    """A place to read candidates from, and to write what became of them."""

    mode: Mode

    async def begin(self, most: int) -> Begun:
        """The moment, and at most so many dirty channels, those that wait longest first."""

    def candidates(self, begun: Begun, most: int) -> AsyncGenerator[Chunk, None]:
        """Users who may be due: to be rechecked, overdue by time (at most so many each), subscribers."""

    async def postpone(self, waits: Mapping[str, int], quiet: Collection[str], now: int) -> None:
        """Look at users again at a moment; those who are quiet need not be looked at again."""

    async def claim(self, users: Collection[str], now: int) -> set[str]:
        """Mark users as handed over; those of them who were not marked by anybody."""

    async def release(self, enqueued_before: Mapping[str, int], now: int) -> None:
        """Take a claim back, as nothing was handed over."""

    async def settle(self, begun: Begun) -> None:
        """The channels are done with, unless they became dirty again meanwhile."""
