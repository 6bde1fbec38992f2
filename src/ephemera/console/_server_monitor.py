"""Figures of all servers, sampled in the background every two seconds and shared by all pages.

A sample is one INFO per server, however many browsers are open; pages send nothing themselves. An unavailable
server leaves a gap. Rates are differences of the server's counters, so they start over after a restart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from ephemera.console._connections import Service, address_of, commands_sent
from ephemera.console._survey_cache import SurveyCache
from ephemera.errors import EphemeraError
from ephemera.keyspace import Role
from ephemera.operations.audit import KeyUse
from ephemera.operations.health import Health, ServerHealth, check_client, failed_check
from ephemera.operations.survey import read_info
from ephemera.wire import Client

INTERVAL = 2.0
"""Seconds between two samples."""
_MAX_SAMPLES = 300
_HEALTH_INTERVAL = 10.0  # seconds between two health checks
_PROBES = 20  # PINGs of a health check
_RATIO_SAMPLES = 15  # samples that a hit ratio is computed from
_MIN_LOOKUPS = 20  # lookups that a hit ratio needs
_NO_EVICTION = "noeviction"
_TIMEOUT = 3.0  # seconds for a server's reply


@dataclass(frozen=True, slots=True)
class ServerSample:
    """A server, or a cluster's masters together, at one moment; None where it did not respond."""

    at: float
    memory: int | None = None
    limit: int = 0
    evicts: bool = False
    """Whether it evicts when the limit is reached."""
    keys: int = 0
    clients: int = 0
    commands: float | None = None
    """Per second, of all clients."""
    own_commands: float | None = None
    """Per second, of this console."""
    evictions: float | None = None
    """Per second."""
    hit_ratio: float | None = None
    """Over the last half minute; None when there were too few lookups."""
    version: str = ""
    uptime: int = 0
    """Seconds; of a cluster, of the master that started last."""


class MonitoredServer:
    """One server or cluster, with all services that have a database on it."""

    def __init__(
        self,
        services: Sequence[Service],
        role: Role | None,
        address: str,
        clients: Sequence[Client],
        name: str,
        surveys: SurveyCache,
    ) -> None:
        self.services = services
        self.role = role
        self.address = address
        self.name = name
        """Distinguishes it from the console's other servers."""
        self.samples: deque[ServerSample] = deque(maxlen=_MAX_SAMPLES)
        self.health: Health | None = None
        self.checked = 0.0
        self.dataset: deque[tuple[float, int]] = deque(maxlen=_MAX_SAMPLES)
        """Bytes of its data over time."""
        self._client = clients[0]
        self._clients = clients
        self._surveys = surveys
        self._before: tuple[float, dict[str, int]] | None = None
        self._lookups: deque[tuple[int, int]] = deque(maxlen=_RATIO_SAMPLES)  # hits and misses

    @property
    def now(self) -> ServerSample | None:
        """The last sample, if the server responded."""
        last = self.samples[-1] if self.samples else None
        return last if last is not None and last.memory is not None else None

    @property
    def growth(self) -> float | None:
        """Growth of its data in bytes per second over all samples; None when they are too few."""
        if len(self.dataset) < 2:
            return None
        (start, first), (end, last) = self.dataset[0], self.dataset[-1]
        return (last - first) / (end - start) if end - start >= 10 * INTERVAL else None

    async def sample(self) -> None:
        """Take a sample."""
        at = time()
        try:
            async with asyncio.timeout(_TIMEOUT):
                nodes: Sequence[Any] = self._client.nodes()
                infos = await asyncio.gather(*(read_info(node) for node in nodes))
        except (EphemeraError, TimeoutError):
            infos = []
        if not infos:
            self._before = None
            self._lookups.clear()
            self.dataset.clear()
            self.samples.append(ServerSample(at))
            return
        counted = {name: _sum(infos, name) for name in _COUNTED}
        counted[_OWN] = sum(commands_sent(client.nodes()) for client in self._clients)
        counted[_OWN] += sum(service.survey_commands[self.address] for service in self.services)
        self.dataset.append((at, _sum(infos, "used_memory_dataset")))
        self.samples.append(self._make_sample(at, infos, counted))
        self._before = (at, counted)

    def _make_sample(self, at: float, infos: list[dict[str, str]], counted: dict[str, int]) -> ServerSample:
        rates: dict[str, float] = {}
        if self._before is not None:
            before, earlier = self._before
            gained = {name: value - earlier[name] for name, value in counted.items()}
            if min(gained.values()) >= 0 and at > before:
                rates = {name: value / (at - before) for name, value in gained.items()}
                self._lookups.append((gained["keyspace_hits"], gained["keyspace_misses"]))
        return ServerSample(
            at=at,
            memory=_sum(infos, "used_memory"),
            limit=_sum(infos, "maxmemory"),
            evicts=any(each.get("maxmemory_policy", _NO_EVICTION) != _NO_EVICTION for each in infos),
            keys=sum(_keys(each) for each in infos),
            clients=_sum(infos, "connected_clients"),
            commands=rates.get("total_commands_processed"),
            own_commands=rates.get(_OWN),
            evictions=rates.get("evicted_keys"),
            hit_ratio=self._ratio(),
            version=", ".join(dict.fromkeys(map(_version, infos))),
            uptime=min(int(each.get("uptime_in_seconds", 0)) for each in infos),
        )

    def _ratio(self) -> float | None:
        hits = sum(hits for hits, _ in self._lookups)
        lookups = hits + sum(misses for _, misses in self._lookups)
        return hits / lookups if lookups >= _MIN_LOOKUPS else None  # our health checks look up a key, too

    async def check_health(self) -> None:
        """Check its health."""
        try:
            catalogues = [catalogue for service in self.services for catalogue in service.catalogues]
            self.health = await check_client(
                self._client, catalogues, role=self.role, probes=_PROBES, undeclared=self._undeclared()
            )
        except EphemeraError as error:
            self.health = _unreachable(self.address, error)
        self.checked = time()

    def _undeclared(self) -> list[KeyUse] | None:
        """What the keys that no service declares need of the server; None before all were seen."""
        surveys = [self._surveys.of(service) for service in self.services]
        if not all(each.at and each.complete for each in surveys):
            return None
        return [use for each in surveys for use in each.undeclared.get(self.role, ())]


class ServerMonitor:
    """Samples and checks the servers of all services."""

    def __init__(self, services: Sequence[Service], surveys: SurveyCache) -> None:
        self.servers = _servers(services, surveys)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            started = time()
            await asyncio.gather(*(server.sample() for server in self.servers))
            due = [
                server
                for server in self.servers
                if started - server.checked >= _HEALTH_INTERVAL or _changed(server)
            ]
            await asyncio.gather(*(server.check_health() for server in due))
            await asyncio.sleep(max(0.1, INTERVAL - (time() - started)))


def _servers(services: Sequence[Service], surveys: SurveyCache) -> list[MonitoredServer]:
    """Each server once: services with different databases on it share its memory and its health."""
    found: dict[tuple[Role | None, str], tuple[list[Service], list[Client]]] = {}
    for service in services:
        for role, url, client in service.servers:
            sharing, clients = found.setdefault((role, address_of(url)), ([], []))
            sharing.append(service)
            clients.append(client)
    return [
        MonitoredServer(sharing, role, address, clients, _name(sharing, role, services), surveys)
        for (role, address), (sharing, clients) in found.items()
    ]


def _name(sharing: Sequence[Service], role: Role | None, services: Sequence[Service]) -> str:
    shared_by_all = len(sharing) == len(services) > 1
    names = [] if shared_by_all and role is not None else [" + ".join(service.name for service in sharing)]
    return ", ".join([*names, *([role] if role is not None else [])])


_COUNTED = ("keyspace_hits", "keyspace_misses", "evicted_keys", "total_commands_processed")


_OWN = "own"  # commands of this console


def _changed(server: MonitoredServer) -> bool:
    """Whether it became unavailable or available since its last check."""
    if server.health is None:
        return True
    reached = all(
        check.status == "ok"
        for each in server.health.servers
        for check in each.checks
        if check.name == "reachable"
    )
    return reached != (server.now is not None)


def _unreachable(address: str, error: EphemeraError) -> Health:
    check = failed_check(
        "reachable", str(error), "the server answers", "is the server running, and is the URL right?"
    )
    return Health(status="problem", servers=[ServerHealth(name=address, status="problem", checks=[check])])


def _version(info: dict[str, str]) -> str:
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', '')}".strip()


def _sum(infos: list[dict[str, str]], name: str) -> int:
    return sum(int(each.get(name, 0)) for each in infos)


def _keys(info: dict[str, str]) -> int:
    """Keys in all databases."""
    return sum(
        int(value.partition("keys=")[2].partition(",")[0])
        for name, value in info.items()
        if name.startswith("db") and "keys=" in value
    )
