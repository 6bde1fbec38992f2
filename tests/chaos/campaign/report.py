"""The report of a campaign: a summary for the screen, and the page docs/proof/faults.md."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from tests.chaos.campaign.campaign import Outcome
from tests.chaos.campaign.load import LOADS
from tests.chaos.campaign.schedule import KINDS

_INTRODUCTION = """\
# The fault campaign

`make chaos` runs all five services as real processes, under load, while everything around them fails, and
then verifies everything that was acknowledged. `python -m tests.chaos.campaign --report` writes this page.

The servers are configured by `ephemera server-config`: a cache that evicts (`allkeys-lru`) and persists
nothing, a queue that does not evict, with a replica and three Sentinels, and PostgreSQL. With one exception:
the queue syncs each write (`appendfsync always` instead of `everysec`), so a master that is killed and
restarted with its file must have everything. What `everysec` may lose, its last second, is what a failover
may lose; the checks excuse that with its reason, and count it. Services reach all servers through TCP
proxies. Faults are drawn from a seed, which is printed; the same seed repeats the same faults at the same
times.
"""
_CLOCKS = """\
Clocks jump in the processes of services and workers (`tests/chaos/campaign/shifted_clock.py` replaces what
Python reads while they run): this needs no package, no LD_PRELOAD and no root. The clocks of Valkey and
PostgreSQL stay right.
"""
_ADMITTED = """\
Requests with revoked credentials (`stolen ...`, `ended session`, `blocked session`) count here only when
they were admitted, which the next tables judge.
"""


def summary(outcome: Outcome) -> str:
    """Return the summary for the screen."""
    ledger = outcome.ledger
    return "\n".join(
        [
            *_figures(outcome),
            *(f"  checked {times} times  {guarantee}" for guarantee, times in sorted(ledger.checked.items())),
            *(f"  excused {times} times  {why}" for why, times in sorted(ledger.excused.items())),
        ]
    )


def page(outcome: Outcome, again: str) -> str:
    """Return the page for docs/proof."""
    ledger = outcome.ledger
    machine = f"{os.cpu_count()} cores shared with other work, Python {platform.python_version()}"
    parts = [
        _INTRODUCTION,
        "## The run\n",
        f"`{again}`, {datetime.now(UTC).date()}, {machine}.\n",
        "\n".join(f"- {line}" for line in _figures(outcome)),
        f"- **{len(ledger.violations)} guarantees violated**\n",
        *(f"- {violation}" for violation in ledger.violations),
        "## Faults\n",
        _table(("fault", "times", ""), _faults(outcome)),
        _CLOCKS,
        "## Acknowledged operations\n",
        _table(
            ("operation", "times"), ((f"`{what}`", times) for what, times in _sorted(ledger.acknowledged))
        ),
        _ADMITTED,
        "## Checks\n",
        _table(("guarantee", "checks"), _sorted(ledger.checked)),
        "## Excused cases\n",
        "Cases that the documentation allows; everything else is a violation.\n",
        _table(("", "times"), _sorted(ledger.excused)),
        "## Guarantees, and what may be lost\n",
        *_guarantees(outcome.systems),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _figures(outcome: Outcome) -> list[str]:
    ledger = outcome.ledger
    restarted = f"{outcome.restarts} processes restarted"
    done = f"{ledger.acknowledged.total()} operations acknowledged, {ledger.refused.total()} refused"
    return [
        f"seed {outcome.seed}, {outcome.seconds / 60:g} minutes, {len(outcome.faults)} faults, {restarted}",
        f"{done}, {ledger.unknown.total()} without an answer",
        f"{ledger.checked.total()} checks, {ledger.excused.total()} excused",
    ]


def _faults(outcome: Outcome) -> Iterable[tuple[str, int, str]]:
    kinds = Counter(fault.kind for fault in outcome.faults)
    for kind, times in sorted(kinds.items()):
        of_kind = [fault for fault in outcome.faults if fault.kind == kind]
        ways = Counter(f"{_kind_of_target(fault.target)} {fault.how}" for fault in of_kind)
        shown = ", ".join(f"{way}: {count}" for way, count in sorted(ways.items()))
        yield f"{KINDS[kind]}", times, shown


def _kind_of_target(target: str) -> str:
    """Return a target without its number: which of two processes it was does not matter here."""
    return target.rstrip("0123456789").rstrip("-")


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items())


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [" | ".join(map(str, row)) for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _guarantees(systems: Iterable[str]) -> Iterable[str]:
    """Return the guarantees in the docstring of each load's module."""
    for system in systems:
        text = sys.modules[LOADS[system].__module__].__doc__ or ""
        _, _, listed = text.partition("checked here:\n\n")
        yield f"### {system}\n\n{listed.strip()}\n"
