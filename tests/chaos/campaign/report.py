"""What came of a campaign: a summary for the screen, and the page of the proof."""

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

`make faults` runs all five services as real processes, under load, while everything around them fails, and
then looks for everything that was acknowledged. `python -m tests.chaos.campaign --report` writes this page.

The servers are as `ephemera server-config` sets them, but for one thing: a cache that evicts (`allkeys-lru`)
and keeps nothing, a queue that does not evict, with a replica and three Sentinels, and PostgreSQL. The queue
syncs each write (`appendfsync always`, in place of `everysec`), so that a master that is killed and started
again with its file must know everything: that is no excuse here. What `everysec` may lose, its last second,
is what a fail-over may lose; the checks excuse that by its reason, and count it. Services reach all servers
through TCP proxies of ours. Faults are drawn from a seed, which is printed; the same seed
brings the same faults at the same moments.
"""
_CLOCKS = """\
Clocks jump in the processes of services and workers (`tests/chaos/campaign/shifted_clock.py` replaces
what Python reads, while they run):
no package, no LD_PRELOAD and no root is needed. Valkey's and PostgreSQL's stay right.
"""
_LET_IN = """\
Requests for what is over (`stolen ...`, `ended session`, `blocked session`) count here only where they were
let in, which the next tables judge.
"""


def summary(outcome: Outcome) -> str:
    """The summary for the screen."""
    ledger = outcome.ledger
    return "\n".join(
        [
            *_figures(outcome),
            *(f"  checked {times} times  {promise}" for promise, times in sorted(ledger.checked.items())),
            *(f"  excused {times} times  {why}" for why, times in sorted(ledger.excused.items())),
        ]
    )


def page(outcome: Outcome, again: str) -> str:
    """The page of the proof."""
    ledger = outcome.ledger
    machine = f"{os.cpu_count()} cores shared with other work, Python {platform.python_version()}"
    parts = [
        _INTRODUCTION,
        "## The run\n",
        f"`{again}`, {datetime.now(UTC).date()}, {machine}.\n",
        "\n".join(f"- {line}" for line in _figures(outcome)),
        f"- **{len(ledger.violations)} promises broken**\n",
        *(f"- {violation}" for violation in ledger.violations),
        "## What was done to them\n",
        _table(("fault", "times", ""), _faults(outcome)),
        _CLOCKS,
        "## What was acknowledged\n",
        _table(
            ("operation", "times"), ((f"`{what}`", times) for what, times in _sorted(ledger.acknowledged))
        ),
        _LET_IN,
        "## What was checked\n",
        _table(("promise", "checks"), _sorted(ledger.checked)),
        "## What was excused\n",
        "What the documentation says may happen, each time that it did; all else is a promise broken.\n",
        _table(("", "times"), _sorted(ledger.excused)),
        "## What is promised, and what may be lost\n",
        *_promises(outcome.systems),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _figures(outcome: Outcome) -> list[str]:
    ledger = outcome.ledger
    restarted = f"{outcome.restarts} processes started again"
    done = f"{ledger.acknowledged.total()} operations acknowledged, {ledger.refused.total()} refused"
    return [
        f"seed {outcome.seed}, {outcome.seconds / 60:g} minutes, {len(outcome.faults)} faults, {restarted}",
        f"{done}, {ledger.unknown.total()} without an answer",
        f"{ledger.checked.total()} checks, {ledger.excused.total()} excused",
    ]


def _faults(outcome: Outcome) -> Iterable[tuple[str, int, str]]:
    kinds = Counter(fault.kind for fault in outcome.faults)
    for kind, times in sorted(kinds.items()):
        ways = Counter(f"{_whom(fault.target)} {fault.how}" for fault in outcome.faults if fault.kind == kind)
        shown = ", ".join(f"{way}: {count}" for way, count in sorted(ways.items()))
        yield f"{KINDS[kind]}", times, shown


def _whom(target: str) -> str:
    """A process without its number: which of two it was does not matter here."""
    return target.rstrip("0123456789").rstrip("-")


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items())


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [" | ".join(map(str, row)) for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _promises(systems: Iterable[str]) -> Iterable[str]:
    """What each load's module says that it checks."""
    for system in systems:
        text = sys.modules[LOADS[system].__module__].__doc__ or ""
        _, _, promised = text.partition("checked here:\n\n")
        yield f"### {system}\n\n{promised.strip()}\n"
