"""The command `make scale`: measure, compute, and write docs/proof/scale.md.

The measured figures are in `benchmarks/scale.json`, so with `--page` a changed assumption needs no new
measurement. The text of the page is in `benchmarks/scale_page.txt`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks import machine, scale_cluster, scale_costs, scale_model
from benchmarks.scale_cluster import EVEN, HOT, LOCAL, MASTERS, PROCESSES, TASKS, Phase
from benchmarks.scale_costs import Cost, Costs
from benchmarks.scale_model import RATES, Limit, Plan, client_at, server_at, spread

PAGE = Path(__file__).parents[1] / "docs" / "proof" / "scale.md"
FIGURES = Path(__file__).with_name("scale.json")

TEMPLATE = Path(__file__).with_name("scale_page.txt")


def main() -> None:
    """Measure unless asked not to, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description="Measure, compute, and write docs/proof/scale.md."
    )
    parser.add_argument("--page", action="store_true", help="compute the page again; measure nothing")
    if not parser.parse_args().page:
        facts = machine.facts()
        costs = uvloop.run(scale_costs.measure())
        phases = uvloop.run(scale_cluster.measure())
        found = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": facts["CPU"].rpartition(", load")[0],
            "costs": asdict(costs),
            "phases": [asdict(phase) for phase in phases],
        }
        FIGURES.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    write()


def write(path: Path = PAGE) -> None:
    """Write the page from the measured figures."""
    path.write_text(render(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")


def render(found: dict[str, Any]) -> str:
    """The page of these figures."""
    costs = msgspec.convert(found["costs"], Costs)
    phases = msgspec.convert(found["phases"], list[Phase])
    limits = scale_model.limits(costs)
    first, stuck = limits[0], next(limit for limit in limits if not limit.more_machines)
    parts = {
        "measured on": [f"Measured on {found['date']} on {found['machine']}."],
        "plans": _plans([scale_model.plan(rate, costs) for rate in RATES]),
        "assumptions": [f"- {means}: {value:,.10g}" for means, value in scale_model.assumptions()],
        "first": [
            f"- The first: {first.name}, at {_rounded(first.rate)} requests a second.",
            f"  What moves it: {first.moved_by}.",
            f"- The first that more machines do not move: {stuck.name}, at {_rounded(stuck.rate)} requests a",
            f"  second. What moves it: {stuck.moved_by}.",
        ],
        "divisible": _limits([limit for limit in limits if limit.more_machines]),
        "indivisible": _limits([limit for limit in limits if not limit.more_machines]),
        "costs": _measured(costs),
        "cluster": [
            f"{MASTERS} masters, and {PROCESSES} client processes with {TASKS} tasks each, which repeat",
            "the three operations of a request without HTTP, all on one machine.",
            "The model knows the costs of one client and one server.",
        ],
        "compared": _compared(costs, {phase.name: phase for phase in phases}),
        "phases": _phases(phases),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        page = page.replace(f"{{{{{name}}}}}", "\n".join(lines))
    return page


def _plans(plans: list[Plan]) -> list[str]:
    def row(name: str, *figures: str) -> str:
        return f"| {name} | {' | '.join(figures)} |"

    def each(name: str, text: Any) -> str:
        return row(name, *(text(plan) for plan in plans))

    return [
        row("requests a second", *(f"{plan.rate:,.0f}" for plan in plans)),
        "|---|" + "---:|" * len(plans),
        each("**web processes** (a core each)", lambda at: f"**{at.processes:,}**"),
        each("**masters**, each with a replica", lambda at: f"**{at.masters:,}**"),
        each("masters by CPU, memory, network", lambda at: f"{at.by_cpu}, {at.by_memory}, {at.by_network}"),
        each("commands in a write", lambda at: f"{at.batch:.1f}"),
        each(
            "CPU of a request: process, server", lambda at: f"{at.process_cost:.0f}, {at.server_cost:.0f} µs"
        ),
        each("memory of all masters", lambda at: _size(at.memory)),
        each("network of all masters", lambda at: _bits(at.network)),
        each("connections of a master", lambda at: f"{at.connections:,}"),
        each("hot entry: its master's budget", lambda at: f"{at.hot_use:.0%}"),
        each("the same with local copies", lambda at: f"{at.local_use:.1%}"),
        each("announcing every change: cores of servers", lambda at: f"{at.announce_use:.2f}"),
        each("their network", lambda at: _bits(at.announce_network)),
        each("hearing them: part of each process", lambda at: f"{at.listen_use:.1%}"),
        each("announcing shared entries only: cores", lambda at: f"{at.shared_use:.3f}"),
        each("messages to every process: cores", lambda at: f"{at.fan_out_use:.2f}"),
    ]


def _limits(limits: list[Limit]) -> list[str]:
    return [
        "| one of these | is full at requests/s | what moves it |",
        "|---|---:|---|",
        *(f"| {limit.name} | {_rounded(limit.rate)} | {limit.moved_by} |" for limit in limits),
    ]


def _measured(costs: Costs) -> list[str]:
    def row(name: str, cost: Cost) -> str:
        return f"| {name} | {cost.client:.1f} | {cost.server:.2f} | {cost.batch:.1f} |"

    sizes = (
        f"A request sends {costs.commands:g} commands, {costs.bytes_in:.0f} bytes to the server and "
        f"{costs.bytes_out:.0f} back. A user's session, its index, limit and profile take "
        f"{costs.user_bytes:,.0f} bytes on the server. An announcement has {costs.push_bytes:.0f} bytes."
    )
    return [
        sizes,
        "",
        "| CPU in µs | process | server | commands in a write |",
        "|---|---:|---:|---:|",
        row("a request over HTTP, 50 connections", costs.busy),
        row("a request over HTTP, 3 connections", costs.usual),
        row("its three operations alone, 50 tasks", costs.data_busy),
        row("its three operations alone, one task", costs.data_quiet),
        row("a cached entry read, 50 tasks", costs.read_busy),
        row("a cached entry read, one task", costs.read_quiet),
        row("an announcement to one process", costs.push),
        row("a published message to one subscriber", costs.message),
    ]


def _compared(costs: Costs, phases: dict[str, Phase]) -> list[str]:
    batch = spread(TASKS, MASTERS)
    client = client_at(costs.data_busy, costs.data_quiet, batch)
    server = server_at(costs.data_busy, costs.data_quiet, batch)
    even, hot, local = (phases[name] for name in (EVEN, HOT, LOCAL))
    share = 1 / MASTERS
    # Of a request's three commands one reads an entry; half of these reads are of one page.
    of_one_page = 0.5 / costs.commands
    rows = [
        ("CPU of a request, process", f"{client:.0f} µs", f"{even.client_cost:.0f} µs"),
        ("CPU of a request, all masters", f"{server:.0f} µs", f"{even.server_cost:.0f} µs"),
        (
            "requests a second for each core",
            f"{1e6 / (client + server):,.0f}",
            f"{1e6 / (even.client_cost + even.server_cost):,.0f}",
        ),
        (f"busiest master, {EVEN}", f"{share:.0%}", f"{even.busiest:.0%}"),
        (f"busiest master, {HOT}", f"{share + (1 - share) * of_one_page:.0%}", f"{hot.busiest:.0%}"),
        (f"busiest master, {LOCAL}", f"{share:.0%}", f"{local.busiest:.0%}"),
    ]
    return ["| | model | measured |", "|---|---:|---:|", *(f"| {' | '.join(row)} |" for row in rows)]


def _phases(phases: list[Phase]) -> list[str]:
    lines = ["| | requests a second | failed | slowest request | |", "|---|---:|---:|---:|---|"]
    for phase in phases:
        failed = ", ".join(f"{count:,} {name}" for name, count in phase.errors.items()) or "0"
        slowest = f"{phase.longest * 1000:,.0f} ms"
        lines.append(f"| {phase.name} | {phase.rate:,.0f} | {failed} | {slowest} | {phase.note} |")
    return lines


def _size(value: float) -> str:
    return f"{value / 1e9:,.3g} GB"


def _bits(value: float) -> str:
    bits = value * 8
    return f"{bits / 1e9:,.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:,.3g} Mbit/s"


def _rounded(value: float) -> str:
    if value >= 1e9:
        return "over 1,000,000,000"
    digits = len(str(int(value))) - 2
    return f"{round(value, -max(0, digits)):,.0f}"


if __name__ == "__main__":
    main()
