"""Overview: whether all is well, what to do when it is not, and how servers move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ephemera.console._capacity import ServerCapacity, capacities
from ephemera.console._components import Column, Empty, columns, facts, plot, section, table, tile, tiles
from ephemera.console._components._cards import Tone
from ephemera.console._components._plots import Plot
from ephemera.console._formatting import per_cent
from ephemera.console._page import Page
from ephemera.console._view import View
from ephemera.console._watcher import Moment, Watched
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.health import Check, worst_status

_TONES: dict[str, Tone] = {"ok": "good", "warning": "warn", "problem": "bad"}
_WORDS = {"ok": "Well", "warning": "Warning", "problem": "Problem"}
_ORDER = ("Problem", "Warning", "Well")
_CHECKS = (
    Column("status", "", "badge"),
    Column("check", "Check"),
    Column("figure", "Figure"),
    Column("rule", "Rule"),
)
_NOT_COUNTED = Empty("Not counted yet", "It is done in the background, in some seconds.", "hourglass_empty")
_NO_KEYS = Empty("No declared key is there", "What the services write shows up here.", "inbox")
_LARGEST = 8  # spaces by what they take


def build(view: View) -> None:
    """Draw it."""
    servers = view.console.watch.servers
    figures = _Figures(servers)
    several = len(servers) > 1
    server = [Column("server", "Server", "mono")] if several else []
    with section("Advice", "Rules that are broken, worst first, with the figure that broke them."):
        nothing = Empty("All is well", "Every rule is kept. What breaks one shows up here.", "check_circle")
        advice = table([*_CHECKS[:1], *server, *_CHECKS[1:], Column("advice", "What to do")], empty=nothing)
    plots = _Plots(servers)
    with section("Capacity", "What the largest spaces take, and where memory is heading."):
        outlook = facts()
        sizes = table(
            [
                Column("space", "Keyspace", "mono"),
                Column("keys", "Keys", "number"),
                Column("each", "Bytes a key", "number"),
                Column("size", "In all", "number"),
            ],
            empty=_NOT_COUNTED,
        )
    with section("Every check"):
        waiting = Empty("Not examined yet", "The first check-up is under way.", "hourglass_empty")
        checks = table([*_CHECKS[:1], *server, *_CHECKS[1:]], empty=waiting, rows_per_page=50, search=several)

    def refresh() -> None:
        view.console.surveys.wanted()
        figures.show()
        plots.show()
        rows = [_row(each, check) for each in servers for check in _checks(each)]
        rows.sort(key=lambda row: _ORDER.index(row["status"]))
        checks.show(rows)
        advice.show([row for row in rows if row["status"] != _WORDS["ok"]])
        found = capacities(view.console)
        outlook.show([(each.name if several else "Memory", each.outlook) for each in found])
        sizes.show(_sizes(found), _NO_KEYS if found else _NOT_COUNTED)

    view.every(2, refresh)


class _Figures:
    """The figures of all servers together."""

    def __init__(self, servers: Sequence[Watched]) -> None:
        self._servers = servers
        with tiles():
            self._health = tile("Health", "examining")
            self._memory = tile("Memory")
            self._keys = tile("Keys")
            self._commands = tile("Commands", "a second")
            self._hits = tile("Hit ratio", "in the last 30 s")
            self._evictions = tile("Evictions", "a second")

    def show(self) -> None:
        healths = [server.health for server in self._servers if server.health is not None]
        if healths:
            status = worst_status(health.status for health in healths)
            found = sum(len(health.advice) for health in healths)
            note = format_count(found, "rule") + " broken" if found else "no rule is broken"
            self._health.show(_WORDS[status], note, _TONES[status])
        now = {server.address: server.now for server in self._servers}.values()  # one may be several places
        up = [moment for moment in now if moment is not None]
        if not up:
            for each in (self._memory, self._keys, self._commands, self._hits, self._evictions):
                each.show("—")
            return
        limit = sum(moment.limit for moment in up)
        used = sum(moment.memory or 0 for moment in up)
        self._memory.show(format_size(used), f"of {format_size(limit)}" if limit else "no limit")
        clients = sum(moment.clients for moment in up)
        self._keys.show(f"{sum(moment.keys for moment in up):,}", format_count(clients, "client"))
        self._commands.show(f"{sum(moment.commands or 0 for moment in up):,.0f}")
        ratios = [moment.hit_ratio for moment in up if moment.hit_ratio is not None]
        self._hits.show(per_cent(sum(ratios) / len(ratios)) if ratios else "—")
        evicted = sum(moment.evictions or 0 for moment in up)
        self._evictions.show(f"{evicted:,.0f}", tone="warn" if evicted else "plain")


class _Plots:
    """A line for each server."""

    def __init__(self, servers: Sequence[Watched]) -> None:
        self._servers = servers
        names = [server.name for server in servers]
        self._plots: list[tuple[Plot, Callable[[Moment], float | None]]] = []
        with columns():
            for title, unit, value in _PLOTTED:
                with section(title):
                    self._plots.append((plot("", unit, *names), value))

    def show(self) -> None:
        moments = [list(server.moments) for server in self._servers]
        for drawn, value in self._plots:
            drawn.show_lines([[(moment.at, value(moment)) for moment in line] for line in moments])


def _per_cent(moment: Moment) -> float | None:
    return None if moment.hit_ratio is None else 100 * moment.hit_ratio


_PLOTTED: tuple[tuple[str, str, Callable[[Moment], float | None]], ...] = (
    ("Memory", "bytes", lambda moment: moment.memory),
    ("Commands a second", "number", lambda moment: moment.commands),
    ("Hit ratio", "percent", _per_cent),
    ("Evictions a second", "number", lambda moment: moment.evictions),
)


def _checks(server: Watched) -> list[tuple[str, Check]]:
    """The checks of a server, or of each node of a cluster."""
    if server.health is None:
        return []
    return [(each.name, check) for each in server.health.servers for check in each.checks]


def _row(server: Watched, found: tuple[str, Check]) -> dict[str, Any]:
    name, check = found
    return {
        "id": f"{server.name}/{name}/{check.name}/{check.figure if check.name == 'roles' else ''}",
        "status": _WORDS[check.status],
        "status_tone": _TONES[check.status],
        "server": f"{server.name} {name}",
        "check": check.name,
        "figure": check.figure,
        "rule": check.rule,
        "advice": check.advice,
    }


def _sizes(found: list[ServerCapacity]) -> list[dict[str, Any]]:
    spaces = [space for each in found for space in each.capacity.keyspaces if space.keys]
    spaces.sort(key=lambda space: -space.size.value if space.size else 0)
    return [
        {
            "id": f"{place}",
            "space": space.pattern,
            "keys": f"{space.keys:,}",
            "keys_sort": space.keys,
            "each": f"{space.bytes_per_key:,.0f}",
            "each_sort": space.bytes_per_key,
            "size": format_size(space.size.value) if space.size else "",
            "size_sort": space.size.value if space.size else 0,
        }
        for place, space in enumerate(spaces[:_LARGEST])
    ]


PAGE = Page("/", "Overview", "space_dashboard", build)
