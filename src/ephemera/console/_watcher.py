"""How servers stand, watched in the background for all pages: some figures every two seconds.

One INFO per server and look, whoever looks at the console; a page that shows them asks no server at all. A
server that is away leaves a gap. Rates are differences of what the server counts, so a restart begins anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from ephemera.console._connections import Place, address_of
from ephemera.errors import EphemeraError
from ephemera.keyspace import Role
from ephemera.operations.health import Health, check_client
from ephemera.operations.survey import read_info
from ephemera.wire import Client

EVERY = 2.0
"""Seconds between two looks."""
_KEPT = 300  # looks
_CHECK_UP = 10.0  # seconds between two check-ups
_PROBES = 20  # PINGs of a check-up: enough for a look every so often
_RATIO_OVER = 15  # looks that a hit ratio is taken from
_ENOUGH = 20  # lookups that say something
_KEEPS = "noeviction"
_PATIENCE = 3.0  # seconds that a server's answer may take


@dataclass(frozen=True, slots=True)
class Moment:
    """A server, or a cluster's masters together, at one moment; None where it did not answer."""

    at: float
    memory: int | None = None
    limit: int = 0
    evicts: bool = False
    """Whether it makes room when the limit is reached."""
    keys: int = 0
    clients: int = 0
    commands: float | None = None
    """A second."""
    evictions: float | None = None
    """A second."""
    hit_ratio: float | None = None
    """Of the lookups in the last half minute; None when they are too few to tell."""


class Watched:
    """One server, or a cluster, with all places that have a database on it."""

    def __init__(
        self, places: Sequence[Place], role: Role | None, address: str, client: Client, name: str
    ) -> None:
        self.places = places
        self.role = role
        self.address = address
        self.name = name
        """What tells it from the console's other servers."""
        self.moments: deque[Moment] = deque(maxlen=_KEPT)
        self.health: Health | None = None
        self.checked = 0.0
        self.dataset: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        """Bytes that its keys take, by when."""
        self._client = client
        self._before: tuple[float, dict[str, int]] | None = None
        self._lookups: deque[tuple[int, int]] = deque(maxlen=_RATIO_OVER)  # hits and misses

    @property
    def now(self) -> Moment | None:
        """The last look, if it was answered."""
        last = self.moments[-1] if self.moments else None
        return last if last is not None and last.memory is not None else None

    @property
    def growth(self) -> float | None:
        """Bytes a second that its data grows by, over what was watched; None when that is too short."""
        if len(self.dataset) < 2:
            return None
        (began, first), (ended, last) = self.dataset[0], self.dataset[-1]
        return (last - first) / (ended - began) if ended - began >= 10 * EVERY else None

    async def look(self) -> None:
        """Ask once."""
        at = time()
        try:
            async with asyncio.timeout(_PATIENCE):
                nodes: Sequence[Any] = self._client.nodes()
                said = await asyncio.gather(*(read_info(node) for node in nodes))
        except (EphemeraError, TimeoutError):
            said = []
        if not said:
            self._before = None
            self._lookups.clear()
            self.dataset.clear()
            self.moments.append(Moment(at))
            return
        counted = {name: _sum(said, name) for name in _COUNTED}
        self.dataset.append((at, _sum(said, "used_memory_dataset")))
        self.moments.append(self._moment(at, said, counted))
        self._before = (at, counted)

    def _moment(self, at: float, said: list[dict[str, str]], counted: dict[str, int]) -> Moment:
        rates: dict[str, float] = {}
        if self._before is not None:
            before, earlier = self._before
            gained = {name: value - earlier[name] for name, value in counted.items()}
            if min(gained.values()) >= 0 and at > before:
                rates = {name: value / (at - before) for name, value in gained.items()}
                self._lookups.append((gained["keyspace_hits"], gained["keyspace_misses"]))
        return Moment(
            at=at,
            memory=_sum(said, "used_memory"),
            limit=_sum(said, "maxmemory"),
            evicts=any(each.get("maxmemory_policy", _KEEPS) != _KEEPS for each in said),
            keys=sum(_keys(each) for each in said),
            clients=_sum(said, "connected_clients"),
            commands=rates.get("total_commands_processed"),
            evictions=rates.get("evicted_keys"),
            hit_ratio=self._ratio(),
        )

    def _ratio(self) -> float | None:
        hits = sum(hits for hits, _ in self._lookups)
        lookups = hits + sum(misses for _, misses in self._lookups)
        return hits / lookups if lookups >= _ENOUGH else None  # a check-up of ours looks up a key, too

    async def check_up(self) -> None:
        """Examine its health."""
        try:
            catalogues = [catalogue for place in self.places for catalogue in place.catalogues]
            self.health = await check_client(self._client, catalogues, role=self.role, probes=_PROBES)
        except EphemeraError as error:
            self.health = _not_examined(self.address, error)
        self.checked = time()


class Watch:
    """All servers of all places."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.servers = _servers(places)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            began = time()
            await asyncio.gather(*(server.look() for server in self.servers))
            due = [
                server for server in self.servers if began - server.checked >= _CHECK_UP or _changed(server)
            ]
            await asyncio.gather(*(server.check_up() for server in due))
            await asyncio.sleep(max(0.1, EVERY - (time() - began)))


def _servers(places: Sequence[Place]) -> list[Watched]:
    """Each server once: services that have different databases on it share its memory and its health."""
    found: dict[tuple[Role | None, str], tuple[list[Place], Client]] = {}
    for place in places:
        for role, url, client in place.servers:
            found.setdefault((role, address_of(url)), ([], client))[0].append(place)
    return [
        Watched(sharing, role, address, client, _name(sharing, role, places))
        for (role, address), (sharing, client) in found.items()
    ]


def _name(sharing: Sequence[Place], role: Role | None, places: Sequence[Place]) -> str:
    everybody = len(sharing) == len(places) > 1
    whose = [] if everybody and role is not None else [" + ".join(place.name for place in sharing)]
    return ", ".join([*whose, *([role] if role is not None else [])])


_COUNTED = ("keyspace_hits", "keyspace_misses", "evicted_keys", "total_commands_processed")


def _changed(server: Watched) -> bool:
    """Whether it went or came back since it was examined."""
    if server.health is None:
        return True
    reached = all(
        check.status == "ok"
        for each in server.health.servers
        for check in each.checks
        if check.name == "reachable"
    )
    return reached != (server.now is not None)


def _not_examined(address: str, error: EphemeraError) -> Health:
    from ephemera.operations.health import ServerHealth, failed_check

    check = failed_check("reachable", str(error), "it answers", "is it running, and is the URL right?")
    return Health(status="problem", servers=[ServerHealth(name=address, status="problem", checks=[check])])


def _sum(said: list[dict[str, str]], name: str) -> int:
    return sum(int(each.get(name, 0)) for each in said)


def _keys(said: dict[str, str]) -> int:
    """Keys in all databases."""
    return sum(
        int(value.partition("keys=")[2].partition(",")[0])
        for name, value in said.items()
        if name.startswith("db") and "keys=" in value
    )
