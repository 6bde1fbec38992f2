"""The report of a run, on the screen and as `docs/proof/fuzz.md`."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz.openapi import EXAMPLES
from tests.fuzz.runner import Tally

PAGE = Path("docs/proof/fuzz.md")
_HEAD = """\
# Fuzzing

Written by `make fuzz ARGS="--seconds {seconds:.0f} --seed {seed}{only} --report"`.

Each trial draws hostile cases from a seed and checks a guarantee that must hold for all of them. A failing
case is shrunk, stored in `build/fuzz/`, and replayed by one command that is printed with it. Most trials run
for some seconds with every test run (`tests/fuzz`), and so does every case that ever failed. `python -m
tests.fuzz --help` has the options. A case of the area openapi is a whole run of schemathesis against a
service: up to {examples} requests for each operation of its document.

- {when}, Python {python}, {cases:,} cases in {took:.0f} s, seed {seed}
- failures: {failures}
"""
_FOOT = """
## Limits of this evidence

- hiredis parses RESP. It reserves memory for an array when its length is announced, so a server that
  announces a billion elements costs memory and time; here it is a million. A server is trusted to that
  extent.
- The services run without rate limits here, which would refuse most cases.
- A failure must occur within this budget to be seen; another seed draws other cases.
"""


def show(screen: Console, tallies: list[Tally]) -> None:
    """Print a table of the trials."""
    table = Table("area", "trial", "cases", "seconds", "held", box=None, pad_edge=False)
    for tally in tallies:
        held = "yes" if tally.failure is None else "[red]NO[/red]"
        table.add_row(tally.area, tally.trial.name, f"{tally.cases:,}", f"{tally.seconds:.0f}", held)
    screen.print(table)


def write(tallies: list[Tally], seed: int, seconds: float, only: list[str] | None) -> None:
    """Write the page."""
    failed = [tally for tally in tallies if tally.failure is not None]
    head = _HEAD.format(
        seconds=seconds,
        examples=EXAMPLES,
        seed=seed,
        only=f" --only {' '.join(only)}" if only else "",
        when=datetime.now(UTC).strftime("%Y-%m-%d"),
        python=platform.python_version(),
        cases=sum(tally.cases for tally in tallies),
        took=sum(tally.seconds for tally in tallies),
        failures=", ".join(f"{tally.area}: {tally.trial.name}" for tally in failed) or "none",
    )
    rows = [
        f"| {tally.area} | {tally.trial.name} | {tally.trial.guarantee} | {tally.cases:,} | "
        f"{'yes' if tally.failure is None else '**no**'} |"
        for tally in tallies
    ]
    kept = _rows_of_other_areas({tally.area for tally in tallies})
    if kept:
        head += "- rows of other areas than these are of an earlier run\n"
    table = ["| area | trial | guarantee | cases | held |", "|---|---|---|---|---|", *kept, *rows]
    lines = [head, *table, _FOOT]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines))


def _rows_of_other_areas(areas: set[str]) -> list[str]:
    """What the page says of areas that this run left out."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    rows = lines[lines.index("|---|---|---|---|---|") + 1 :] if "|---|---|---|---|---|" in lines else []
    return [row for row in rows if row.startswith("| ") and row[2:].partition(" ")[0] not in areas]
