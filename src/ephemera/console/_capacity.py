"""The capacity of monitored servers, from figures that are already known."""

from __future__ import annotations

from dataclasses import dataclass

from ephemera.console._console import Console
from ephemera.console._server_monitor import INTERVAL, MonitoredServer
from ephemera.console._survey_cache import ServiceSurvey
from ephemera.operations.formatting import format_size
from ephemera.operations.health import Capacity, KeyspaceSize


@dataclass(frozen=True)
class ServerCapacity:
    """One server's capacity."""

    name: str
    capacity: Capacity

    @property
    def outlook(self) -> str:
        """Memory use and its trend, as a sentence."""
        found = self.capacity
        limit = (
            f"{format_size(found.used)} of {format_size(found.limit)} used"
            if found.limit
            else format_size(found.used)
        )
        if not found.limit:
            return f"{limit} used, no limit"
        if found.evicts:
            return f"{limit}; evicts when it is full"
        if found.time_until_full is None:
            return f"{limit}; not growing"
        return f"{limit}; full in {found.time_until_full} at {format_size(found.growth)}/s"


def capacities(console: Console) -> list[ServerCapacity]:
    """The capacity of each server that was surveyed and sampled."""
    return [
        found
        for server in console.monitor.servers
        if (found := _capacity(server, [console.surveys.of(service) for service in server.services]))
        is not None
    ]


def _capacity(server: MonitoredServer, surveys: list[ServiceSurvey]) -> ServerCapacity | None:
    now, counted = server.now, [found for found in surveys if found.at]
    if now is None or not counted:
        return None
    sizes = [
        KeyspaceSize(
            pattern=each.report.pattern,
            keys=each.report.keys,
            bytes_per_key=each.report.size.value / each.report.keys
            if each.report.size and each.report.keys
            else 0.0,
            size=each.report.size,
        )
        for found in counted
        for each in found.keyspaces.values()
        if server.role in (None, each.keyspace.role)
    ]
    capacity = Capacity(
        used=now.memory or 0,
        limit=now.limit,
        evicts=now.evicts,
        keyspaces=sizes,
        unknown_keys=sum(unknown.keys for found in counted for _, unknown in found.unknown),
        observed=len(server.dataset) * INTERVAL,
        growth=max(0.0, server.growth or 0.0),
    )
    return ServerCapacity(server.name, capacity)
