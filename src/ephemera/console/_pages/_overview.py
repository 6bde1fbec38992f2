"""Overview: health, advice, live figures of the servers, and capacity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ephemera.console._capacity import ServerCapacity, capacities
from ephemera.console._components import Column, Empty, columns, facts, plot, section, table, tile, tiles
from ephemera.console._components._cards import Tone
from ephemera.console._components._plots import Plot
from ephemera.console._formats import format_percent
from ephemera.console._history import QUANTILES
from ephemera.console._server_monitor import MonitoredServer, ServerSample
from ephemera.console._view import ConsolePage, View
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.health import Check, worst_status

_TONES: dict[str, Tone] = {"ok": "good", "note": "info", "warning": "warn", "problem": "bad"}
_WORDS = {"ok": "OK", "note": "Note", "warning": "Warning", "problem": "Problem"}
_ORDER = ("Problem", "Warning", "Note", "OK")
_CHECKS = (
    Column("status", "", "badge"),
    Column("check", "Check"),
    Column("figure", "Figure"),
    Column("rule", "Rule"),
)
_NOT_SURVEYED = Empty("Not surveyed yet", "The first survey takes a few seconds.", "hourglass_empty")
_NO_KEYS = Empty("No declared keys", "Keys that services write appear here.", "inbox")
_LARGEST = 12  # keyspaces shown


def build(view: View) -> None:
    """Draw it."""
    servers = view.console.monitor.servers
    figures = _Figures(servers)
    several = len(servers) > 1
    server = [Column("server", "Server", "mono")] if several else []
    with section("Advice", "Violated rules, worst first, with the measured figure."):
        nothing = Empty("No problems", "All rules hold. Violations appear here.", "check_circle")
        advice = table([*_CHECKS[:1], *server, *_CHECKS[1:], Column("advice", "What to do")], empty=nothing)
    plots = _Plots(servers)
    latencies = _Latencies(view)
    with section("Capacity", "The largest keyspaces, and the trend of memory."):
        outlook = facts()
        sizes = table(
            [
                Column("keyspace", "Keyspace", "mono"),
                Column("keys", "Keys", "number"),
                Column("each", "Bytes per key", "number"),
                Column("size", "Total", "number"),
            ],
            empty=_NOT_SURVEYED,
        )
    with section("All checks"):
        waiting = Empty("Not checked yet", "The first health check is running.", "hourglass_empty")
        checks = table([*_CHECKS[:1], *server, *_CHECKS[1:]], empty=waiting, rows_per_page=50, search=several)

    def refresh() -> None:
        view.console.surveys.refresh_if_stale()
        figures.show()
        plots.show()
        latencies.show()
        rows = [_row(each, check) for each in servers for check in _checks(each)]
        rows.sort(key=lambda row: _ORDER.index(row["status"]))
        checks.show(rows)
        advice.show([row for row in rows if row["status"] != _WORDS["ok"]])
        found = capacities(view.console)
        outlook.show([(each.name if several else "Memory", each.outlook) for each in found])
        sizes.show(_sizes(found), _NO_KEYS if found else _NOT_SURVEYED)

    view.every(2, refresh)


class _Figures:
    """The figures of all servers together."""

    def __init__(self, servers: Sequence[MonitoredServer]) -> None:
        self._servers = servers
        with tiles():
            self._health = tile("Health", "checking")
            self._memory = tile("Memory")
            self._keys = tile("Keys")
            self._commands = tile("Commands", "/s")
            self._hits = tile("Hit ratio", "in the last 30 s")
            self._evictions = tile("Evictions", "per second")

    def show(self) -> None:
        healths = [server.health for server in self._servers if server.health is not None]
        if healths:
            status = worst_status(health.status for health in healths)
            found = sum(len(health.advice) for health in healths)
            note = format_count(found, "rule") + " violated" if found else "all rules hold"
            self._health.show(_WORDS[status], note, _TONES[status])
        now = {server.address: server.now for server in self._servers}.values()  # services may share a server
        up = [sample for sample in now if sample is not None]
        if not up:
            for each in (self._memory, self._keys, self._commands, self._hits, self._evictions):
                each.show("—")
            return
        limit = sum(sample.limit for sample in up)
        used = sum(sample.memory or 0 for sample in up)
        self._memory.show(format_size(used), f"of {format_size(limit)}" if limit else "no limit")
        clients = sum(sample.clients for sample in up)
        self._keys.show(f"{sum(sample.keys for sample in up):,}", format_count(clients, "client"))
        commands = sum(sample.commands or 0 for sample in up)
        own = min(commands, sum(sample.own_commands or 0 for sample in up))  # they are counted a moment later
        self._commands.show(f"{commands:,.0f}", f"/s, {own:,.0f} own")
        ratios = [sample.hit_ratio for sample in up if sample.hit_ratio is not None]
        self._hits.show(format_percent(sum(ratios) / len(ratios)) if ratios else "—")
        evicted = sum(sample.evictions or 0 for sample in up)
        self._evictions.show(f"{evicted:,.0f}", tone="warn" if evicted else "plain")


class _Plots:
    """A line for each server."""

    def __init__(self, servers: Sequence[MonitoredServer]) -> None:
        self._servers = servers
        names = [server.name for server in servers]
        self._plots: list[tuple[Plot, Callable[[ServerSample], float | None]]] = []
        with columns():
            for title, unit, value in _PLOTTED:
                with section(title):
                    self._plots.append((plot("", unit, *names), value))

    def show(self) -> None:
        samples = [list(server.samples) for server in self._servers]
        for drawn, value in self._plots:
            drawn.show_lines([[(sample.at, value(sample)) for sample in line] for line in samples])


class _Latencies:
    """How long calls took by each service that has metrics, over hours."""

    def __init__(self, view: View) -> None:
        self._history = view.console.history
        self._plots: list[tuple[str, Plot]] = []
        measured = [service.name for service in view.services if service.hit_ratios.urls]
        with columns():
            for name in measured:
                title = f"Latency of {name}" if len(view.services) > 1 else "Latency"
                with section(title, "Of its calls to Redis, by minute, in the last hours."):
                    self._plots.append((name, plot("", "seconds", *QUANTILES)))

    def show(self) -> None:
        for name, drawn in self._plots:
            drawn.show_lines([self._history.latency(name, quantile) for quantile in QUANTILES.values()])


def _per_cent(sample: ServerSample) -> float | None:
    return None if sample.hit_ratio is None else 100 * sample.hit_ratio


_PLOTTED: tuple[tuple[str, str, Callable[[ServerSample], float | None]], ...] = (
    ("Memory", "bytes", lambda sample: sample.memory),
    ("Commands per second", "number", lambda sample: sample.commands),
    ("Hit ratio", "percent", _per_cent),
    ("Evictions per second", "number", lambda sample: sample.evictions),
)


def _checks(server: MonitoredServer) -> list[tuple[str, Check]]:
    """The checks of a server, or of each node of a cluster."""
    if server.health is None:
        return []
    return [(each.name, check) for each in server.health.servers for check in each.checks]


def _row(server: MonitoredServer, found: tuple[str, Check]) -> dict[str, Any]:
    name, check = found
    return {
        "id": f"{server.name}/{name}/{check.name}/{check.figure if check.name == 'roles' else ''}",
        "status": _WORDS[check.status],
        "status_tone": _TONES[check.status],
        "server": f"{server.name} {name}",
        "check": check.name,
        "figure": check.figure,
        "rule": check.rule,
        "advice": "\n".join([check.advice, *check.commands]),
    }


def _sizes(found: list[ServerCapacity]) -> list[dict[str, Any]]:
    keyspaces = [keyspace for each in found for keyspace in each.capacity.keyspaces if keyspace.keys]
    keyspaces.sort(key=lambda keyspace: -keyspace.size.value if keyspace.size else 0)
    return [
        {
            "id": f"{position}",
            "keyspace": keyspace.pattern,
            "keys": f"{keyspace.keys:,}",
            "keys_sort": keyspace.keys,
            "each": f"{keyspace.bytes_per_key:,.0f}",
            "each_sort": keyspace.bytes_per_key,
            "size": format_size(keyspace.size.value) if keyspace.size else "",
            "size_sort": keyspace.size.value if keyspace.size else 0,
        }
        for position, keyspace in enumerate(keyspaces[:_LARGEST])
    ]


PAGE = ConsolePage("/", "Overview", "space_dashboard", build)
