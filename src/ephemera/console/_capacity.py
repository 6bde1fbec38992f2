"""How long memory will do, from what the background has found: no server is asked."""

from __future__ import annotations

from dataclasses import dataclass

from ephemera.console._console import Console
from ephemera.console._survey_cache import Found
from ephemera.console._watcher import EVERY, Watched
from ephemera.operations.formatting import format_size
from ephemera.operations.health import Capacity, KeyspaceSize


@dataclass(frozen=True)
class ServerCapacity:
    """One server's capacity."""

    name: str
    capacity: Capacity

    @property
    def outlook(self) -> str:
        """Where it is heading, in words."""
        found = self.capacity
        limit = (
            f"{format_size(found.used)} of {format_size(found.limit)} used"
            if found.limit
            else format_size(found.used)
        )
        if not found.limit:
            return f"{limit} used, and no limit to reach"
        if found.evicts:
            return f"{limit}; when it is full, it evicts"
        if found.time_until_full is None:
            return f"{limit}; it does not grow"
        return f"{limit}; full in {found.time_until_full} at {format_size(found.growth)}/s"


def capacities(console: Console) -> list[ServerCapacity]:
    """Those of the servers that were counted and are watched."""
    return [
        found
        for server in console.watch.servers
        if (found := _capacity(server, [console.surveys.of(place) for place in server.places])) is not None
    ]


def _capacity(server: Watched, of_places: list[Found]) -> ServerCapacity | None:
    now, counted = server.now, [found for found in of_places if found.at]
    if now is None or not counted:
        return None
    spaces = [
        KeyspaceSize(
            pattern=each.state.pattern,
            keys=each.state.keys,
            bytes_per_key=each.state.size.value / each.state.keys
            if each.state.size and each.state.keys
            else 0.0,
            size=each.state.size,
        )
        for found in counted
        for each in found.spaces.values()
        if server.role in (None, each.space.role)
    ]
    capacity = Capacity(
        used=now.memory or 0,
        limit=now.limit,
        evicts=now.evicts,
        keyspaces=spaces,
        unknown_keys=sum(unknown.keys for found in counted for _, unknown in found.unknown),
        observed=len(server.dataset) * EVERY,
        growth=max(0.0, server.growth or 0.0),
    )
    return ServerCapacity(server.name, capacity)
