"""How long a server's memory will do: what each space takes, and the days until it is full.

Two estimates, from an audit and from watching:

- **what each space takes**: its keys times the measured bytes a key, with the sample's margin;
- **where it is heading**: the memory that the data gained while the server was watched, in bytes a second. A
  server that evicts is never full, it forgets sooner; one that gains nothing has as long as it likes.

Watching for a few seconds sees the present moment's trend and no more: a nightly import is not in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ephemera.keyspace import Catalogue
from ephemera.operations.audit._audit import audit
from ephemera.operations.inspect._sampling import Interval
from ephemera.operations.inspect._server_facts import info
from ephemera.operations.inspect._survey import Plan
from ephemera.wire import open_client

_DAY = 86_400.0
_SAMPLE = 200  # keys of each space: sizes within a few percent
_NOISE = 16 * 1024  # bytes that a server's own buffers come and go by


class SpaceSize(msgspec.Struct, frozen=True, kw_only=True):
    """What one space takes."""

    pattern: str
    keys: int
    bytes_per_key: float
    size: Interval | None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a server holds, can hold, and how fast it fills."""

    used: int
    limit: int
    """0: none."""
    evicts: bool
    spaces: list[SpaceSize]
    unknown_keys: int
    watched: float
    """Seconds."""
    growth: float
    """Bytes a second."""

    @property
    def days_until_full(self) -> float | None:
        """At the present growth; None when it does not grow, has no limit, or makes room by itself."""
        if self.growth <= 0 or not self.limit or self.evicts:
            return None
        return max(0, self.limit - self.used) / self.growth / _DAY

    @property
    def time_until_full(self) -> str | None:
        """The same in words, in hours when it is less than a day."""
        days = self.days_until_full
        if days is None:
            return None
        number, unit = (days, "day") if days >= 1 else (days * 24, "hour")
        shown = f"{number:,.1f}"
        return f"{shown} {unit}" if shown == "1.0" else f"{shown} {unit}s"


async def estimate(url: str, catalogues: Sequence[Catalogue], *, watch: float, budget: float) -> Capacity:
    """The capacity of the servers behind a URL, all of them together."""
    async with open_client(url) as client:
        nodes = [node for each in client.nodes() for node in each.nodes()]
        before = [await info(node) for node in nodes]  # type: ignore[arg-type]
        report, _ = await asyncio.gather(
            audit(url, catalogues, Plan(sample=_SAMPLE, budget=budget, contents=False)),
            asyncio.sleep(watch),
        )
        after = [await info(node) for node in nodes]  # type: ignore[arg-type]
    watched = max(watch, report.seconds)
    gained = _total(after, "used_memory_dataset") - _total(before, "used_memory_dataset")
    return Capacity(
        used=_total(after, "used_memory"),
        limit=_total(after, "maxmemory"),
        evicts=all(server.evicts for server in report.servers),
        spaces=sorted(
            (
                SpaceSize(
                    pattern=space.pattern,
                    keys=space.keys,
                    bytes_per_key=space.size.value / space.keys if space.size and space.keys else 0.0,
                    size=space.size,
                )
                for space in report.spaces
            ),
            key=lambda space: -space.size.value if space.size else 0,
        ),
        unknown_keys=report.unknown.keys,
        watched=watched,
        growth=gained / watched if gained > _NOISE else 0.0,
    )


def _total(said: list[dict[str, str]], name: str) -> int:
    return sum(int(each.get(name, 0)) for each in said)
