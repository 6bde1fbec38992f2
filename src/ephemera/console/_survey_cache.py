"""What is on the servers, by space: found out in the background within a budget, shown by all pages.

    surveys.wanted()             # a page is looked at: begin one, unless the last is fresh
    surveys.of(place).spaces     # pattern -> what was found, at once, asking nobody

A survey is that of `operations.survey`: names by SCAN a page at a time, then a sample of each space, in at
most `BUDGET` seconds; it runs only while somebody looks. Of sensitive spaces no value is read at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from ephemera.console._connections import Place
from ephemera.console._decoded import UNREADABLE, Entry, decoded_as, entries_of
from ephemera.errors import EphemeraError
from ephemera.keyspace import RESERVED, Keyspace, Role
from ephemera.operations.audit import (
    NO_TTL,
    Coverage,
    KeyspaceReport,
    UnknownKeys,
    coverage_of,
    estimate_all_keys,
    keyspace_report,
    unknown_keys,
)
from ephemera.operations.survey import ServerInfo, Survey, SurveyOptions, open_servers, survey

log = logging.getLogger(__name__)
BUDGET = 5.0
"""Seconds that a survey of one server takes at most."""
FRESH = 20.0
"""Seconds for which what was found is good enough."""
_SAMPLE = 60  # keys of each space that are looked at
_AGAIN = 3.0  # seconds after one that failed


@dataclass(frozen=True)
class SpaceFound:
    """A declared space as it was found."""

    space: Keyspace[Any]
    state: KeyspaceReport
    entries: list[Entry]
    unreadable: int
    """Sampled keys that hold something else than declared."""

    @property
    def without_ttl(self) -> int:
        """Keys of the sample that have no end."""
        return self.state.ttl.get(NO_TTL, 0)


@dataclass(frozen=True)
class Found:
    """What was found at one place."""

    at: float = 0.0
    """When; 0: not yet."""
    spaces: dict[str, SpaceFound] = field(default_factory=dict)
    unknown: list[tuple[str, UnknownKeys]] = field(default_factory=list)
    """By the name of the server."""
    coverage: list[Coverage] = field(default_factory=list)
    servers: list[ServerInfo] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every key was counted."""
        return all(each.complete for each in self.coverage)


class Surveys:
    """The surveys of all places."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._found: dict[Place, Found] = {}
        self._failed: dict[Place, float] = {}  # when
        self._under_way: asyncio.Task[None] | None = None
        self.progress: tuple[str, int, int] = ("", 0, 0)
        """What is counted at the moment, how much of it is done, and of how much."""

    def of(self, place: Place) -> Found:
        """What is known of a place."""
        return self._found.get(place, Found())

    @property
    def running(self) -> bool:
        """Whether one is under way."""
        return self._under_way is not None and not self._under_way.done()

    def wanted(self) -> None:
        """Begin one of the places of which what is known is not fresh."""
        if self.running:
            return
        now = time()
        due = [
            place
            for place in self._places
            if now - self.of(place).at >= FRESH and now - self._failed.get(place, 0.0) >= _AGAIN
        ]
        if due:
            self._under_way = asyncio.create_task(self._run(due))

    async def stop(self) -> None:
        """End the one under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    async def _run(self, due: list[Place]) -> None:
        for place in due:
            try:
                self._found[place] = await self._look_at(place)
            except EphemeraError:  # it is away, as every page says: what was known stays
                self._failed[place] = time()
            except Exception:
                self._failed[place] = time()
                log.exception("a survey failed")

    async def _look_at(self, place: Place) -> Found:
        spaces = [space for space in (*RESERVED, *place.spaces) if space.kind != "channel"]
        found = Found(at=time())
        began = time()
        for role, url, _ in place.servers:
            async with open_servers(url) as nodes:
                plan = SurveyOptions(sample=_SAMPLE, budget=BUDGET)
                seen = await survey(nodes, spaces, plan, decoded_as, self._tell)
            _add(found, seen, role)
        return Found(time(), found.spaces, found.unknown, found.coverage, found.servers, time() - began)

    def _tell(self, what: str, done: int, total: int) -> None:
        self.progress = (what, done, total)


def _add(found: Found, seen: Survey, role: Role | None) -> None:
    """Take over what a survey of one server saw of the spaces that belong there."""
    declared = []
    for tally in seen.samples:
        space = tally.keyspace
        if space is None or space.catalogue == RESERVED.name:
            continue
        declared.append(space)
        if role in (None, space.role):
            unreadable = sum(probe.content == UNREADABLE for probe in tally.keys)
            state = keyspace_report(tally, space, estimate_all_keys(seen, tally.count))
            found.spaces[space.pattern] = SpaceFound(space, state, entries_of(tally, space), unreadable)
    for scan in seen.scans[:1]:
        found.unknown.append((scan.info.name, unknown_keys(seen, declared)))
    found.coverage.append(coverage_of(seen))
    found.servers.extend(scan.info for scan in seen.scans)
