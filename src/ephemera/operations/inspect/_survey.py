"""A survey of a server: all names counted by space, a fair sample of each space looked at.

First all names by SCAN, on a cluster all of its nodes side by side, each name to its space or to the shapes
of the unknown. Then the sample of each space: type, time to live, size, content (`probing`). Both keep to
one budget of time, of which the names get the larger part; what was not seen is known, and a cursor says
from where to continue.

A survey has a client of its own, because it tells the server not to count its looks as uses.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import compress, zip_longest
from typing import Any

from ephemera.keyspace import Keyspace
from ephemera.operations.infer._names import Names
from ephemera.operations.inspect import _server_facts as server_facts
from ephemera.operations.inspect._key_shapes import Shapes
from ephemera.operations.inspect._probe import Look, Probe, Prober
from ephemera.operations.inspect._sampling import Reservoir
from ephemera.operations.inspect._scan import Scan, continued, rest_of, scan_all
from ephemera.operations.inspect._server_facts import ServerFacts
from ephemera.wire import NodeClient, open_client

Progress = Callable[[str, int, int], None]
"""Hears what is done at the moment, how much of it, and of how much."""

SAMPLE = 100
"""Keys of each space that are looked at, unless another number is given."""

BUDGET = 30.0
"""Seconds that a survey takes at most, unless told."""

_FOR_NAMES = 0.8  # of the budget


@dataclass(frozen=True)
class Plan:
    """How much is looked at; a sample of 0 means names alone."""

    sample: int = SAMPLE
    budget: float = BUDGET
    cursor: str | None = None
    contents: bool = True


class Tally:
    """The keys of one space, or (without a space) of none of them."""

    def __init__(self, space: Keyspace[Any] | None, sample: int, chance: random.Random) -> None:
        self.space = space
        self.count = 0
        self.sample: Reservoir[tuple[Scan, bytes]] = Reservoir(sample, chance)
        self.probes: list[Probe] = []

    def add(self, scan: Scan, count: int, names: Iterable[bytes]) -> None:
        """Count some names, and take into the sample what it wants of them."""
        self.count += count
        if self.sample.wants(count):
            self.sample.show([(scan, name) for name in names])
        else:
            self.sample.skip(count)


@dataclass
class Survey:
    """What was seen, and what was not."""

    scans: list[Scan]
    tallies: list[Tally]
    unknown: Tally
    shapes: Shapes
    resumed: bool
    seconds: float = 0.0
    probers: list[Prober] = field(default_factory=list)
    unprobed: int = 0  # sampled keys that there was no time for

    @property
    def all(self) -> list[Tally]:
        """The tallies of all spaces, and that of the unknown."""
        return [*self.tallies, self.unknown]

    @property
    def names(self) -> int:
        """Names that were seen."""
        return sum(scan.names for scan in self.scans)

    @property
    def keys(self) -> int:
        """Keys that the servers said they had, at the beginning."""
        return sum(scan.facts.keys for scan in self.scans)

    @property
    def complete(self) -> bool:
        """Whether every key was seen, from the beginning to the end."""
        return not self.resumed and all(scan.done for scan in self.scans)

    @property
    def rest(self) -> str | None:
        """The cursor to continue from, if there is something left."""
        return rest_of(self.scans)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[list[tuple[NodeClient, ServerFacts]]]:
    """The servers that hold a URL's keys, on connections of one's own, with what they say of themselves."""
    async with open_client(url) as client:
        nodes = client.readers()
        facts = await asyncio.gather(*map(server_facts.ask, nodes))
        yield list(zip(nodes, facts, strict=True))


async def survey(
    nodes: Sequence[tuple[NodeClient, ServerFacts]],
    spaces: Iterable[Keyspace[Any]],
    plan: Plan,
    look: Callable[[Keyspace[Any]], Look | None] | None = None,
    progress: Progress = lambda *_: None,
) -> Survey:
    """See what is on these servers.

    `look` gives for a space what to make of its keys' contents; None: they are not read.
    """
    began = time.monotonic()
    seen, take = _counting(continued(nodes, plan.cursor), Names(spaces), plan, progress)
    await scan_all(seen.scans, take, began + plan.budget * _FOR_NAMES)
    if plan.sample:
        await _probe(seen, plan, look, began + plan.budget, progress)
    seen.seconds = time.monotonic() - began
    return seen


def _counting(
    scans: list[Scan], classify: Names, plan: Plan, progress: Progress
) -> tuple[Survey, Callable[[Scan, Sequence[bytes]], None]]:
    """A survey that has seen nothing yet, and what is to be done with each page of names."""
    chance = random.Random()
    tallies = [Tally(space, plan.sample, chance) for space in classify.spaces]
    unknown = Tally(None, plan.sample, chance)
    seen = Survey(scans, tallies, unknown, Shapes(), resumed=plan.cursor is not None)
    by_number = dict(enumerate(seen.all, 1))
    total = seen.keys

    def take(scan: Scan, page: Sequence[bytes]) -> None:
        numbers = classify(page)
        for number, count in Counter(numbers).items():
            by_number[number].add(scan, count, compress(page, map(number.__eq__, numbers)))
            if number == classify.unknown:
                for name in compress(page, map(number.__eq__, numbers)):
                    seen.shapes.add(name)
        progress("names", seen.names, total)

    return seen, take


async def _probe(
    seen: Survey,
    plan: Plan,
    look: Callable[[Keyspace[Any]], Look | None] | None,
    deadline: float,
    progress: Progress,
) -> None:
    """Look at the samples, a key of each space in turn, so that all spaces share a deadline fairly."""
    seen.probers = await asyncio.gather(*(Prober.of(scan.node) for scan in seen.scans))
    queues: dict[Scan, list[Probe]] = {scan: [] for scan in seen.scans}
    for turn in zip_longest(*(_drawn(tally, look if plan.contents else None) for tally in seen.all)):
        for scan, probe in filter(None, turn):
            queues[scan].append(probe)
    total = sum(map(len, queues.values()))
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress("samples", done, total)

    await asyncio.gather(
        *(
            prober.probe(queue, deadline, tell)
            for prober, queue in zip(seen.probers, queues.values(), strict=True)
        )
    )
    seen.unprobed = total - done
    for tally in seen.all:
        tally.probes = [probe for probe in tally.probes if probe.there]


def _drawn(tally: Tally, look: Callable[[Keyspace[Any]], Look | None] | None) -> Iterator[tuple[Scan, Probe]]:
    """The probes of a sample in random order, each with where its key is."""
    looking = look(tally.space) if look and tally.space else None
    drawn = list(dict.fromkeys(tally.sample.items))  # SCAN may give a name twice
    random.shuffle(drawn)
    tally.probes = [Probe(key, looking) for _, key in drawn]
    return zip((scan for scan, _ in drawn), tally.probes, strict=True)
