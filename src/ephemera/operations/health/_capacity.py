"""Memory capacity: what each keyspace takes, and the days until the server is full.

Two estimates, from an audit and from observing the server:

- **size per keyspace**: its keys times the measured bytes per key, with the sample's margin of error;
- **growth**: the memory the data gained while the server was observed, in bytes per second. A server that
  evicts never becomes full; it evicts sooner.

A few seconds show the present trend only: a nightly import is not included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ephemera.keyspace import Catalogue
from ephemera.operations.audit import KeyUse, audit, undeclared_uses
from ephemera.operations.survey import Interval, SurveyOptions, read_info
from ephemera.wire import open_client

_DAY = 86_400.0
_SAMPLE = 200  # keys per keyspace: sizes within a few percent
_NOISE = 16 * 1024  # bytes by which a server's own buffers vary


class KeyspaceSize(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one keyspace."""

    pattern: str
    keys: int
    bytes_per_key: float
    size: Interval | None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a server: used, limit and growth."""

    used: int
    limit: int
    """Bytes; 0: no limit."""
    evicts: bool
    keyspaces: list[KeyspaceSize]
    unknown_keys: int
    observed: float
    """Seconds."""
    growth: float
    """Bytes per second."""
    undeclared: list[KeyUse] | None = None
    """What its other keys need of the server; None when not all were seen."""

    @property
    def days_until_full(self) -> float | None:
        """At the present growth; None when it does not grow, has no limit, or evicts."""
        if self.growth <= 0 or not self.limit or self.evicts:
            return None
        return max(0, self.limit - self.used) / self.growth / _DAY

    @property
    def time_until_full(self) -> str | None:
        """The same as text, in hours when it is less than a day."""
        days = self.days_until_full
        if days is None:
            return None
        number, unit = (days, "day") if days >= 1 else (days * 24, "hour")
        shown = f"{number:,.1f}"
        return f"{shown} {unit}" if shown == "1.0" else f"{shown} {unit}s"


async def estimate_capacity(
    url: str, catalogues: Sequence[Catalogue], *, observe: float, budget: float
) -> Capacity:
    """Estimate the total capacity of the servers at a URL, observing them for `observe` seconds."""
    async with open_client(url) as client:
        nodes = client.nodes()
        before = [await read_info(node) for node in nodes]
        report, _ = await asyncio.gather(
            audit(url, catalogues, SurveyOptions(sample=_SAMPLE, budget=budget, contents=False)),
            asyncio.sleep(observe),
        )
        after = [await read_info(node) for node in nodes]
    observed = max(observe, report.seconds)
    gained = _total(after, "used_memory_dataset") - _total(before, "used_memory_dataset")
    return Capacity(
        used=_total(after, "used_memory"),
        limit=_total(after, "maxmemory"),
        evicts=all(server.evicts for server in report.servers),
        keyspaces=sorted(
            (
                KeyspaceSize(
                    pattern=keyspace.pattern,
                    keys=keyspace.keys,
                    bytes_per_key=keyspace.size.value / keyspace.keys
                    if keyspace.size and keyspace.keys
                    else 0.0,
                    size=keyspace.size,
                )
                for keyspace in report.keyspaces
            ),
            key=lambda keyspace: -keyspace.size.value if keyspace.size else 0,
        ),
        unknown_keys=report.unknown.keys,
        undeclared=undeclared_uses(report.unknown) if report.coverage.complete else None,
        observed=observed,
        growth=gained / observed if gained > _NOISE else 0.0,
    )


def _total(infos: list[dict[str, str]], name: str) -> int:
    return sum(int(info.get(name, 0)) for info in infos)
