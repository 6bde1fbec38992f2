"""docs/proof/mutants.md: how many mutants were killed, and what is known of the others."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from tests.mutants.known import ACCEPTED, EARLIER, EQUIVALENT
from tests.mutants.runner import Outcome
from tests.mutants.targets import GROUPS, ROOT

PAGE = ROOT / "docs/proof/mutants.md"
FLOOR = 0.85
_HEAD = """\
# Mutants

Whether the tests notice a wrong line: single changes of Python and Lua files, drawn by a seed, each run with
tests of `make test` that execute its line, the cheapest and most specific first
(`tests/mutants/executions.py`). A failure counts if the same test fails again, alone, and passes on the
original. Written by `make mutants`, which keeps what it found out until the changed file is another, and runs
survivors again.

- {when}, Python {python}, seed {seed}: **{killed} of {judged} killed ({share:.0%})**; required: {floor:.0%}
- when they were first run, before tests were written for survivors: **{at_first} of {judged}
  ({first_share:.0%})**, which is what to expect of other mutants
{notes}
| code | mutants | killed |
|---|---|---|
"""


def share_killed(outcomes: Iterable[Outcome]) -> float:
    """Return the share of killed mutants; one without a verdict is not killed."""
    verdicts = [each.verdict for each in outcomes]
    return verdicts.count("killed") / max(1, len(verdicts))


def write(outcomes: list[Outcome], equivalent: list[str], seed: int, drawn: int, at_first: int) -> None:
    """Write the page."""
    PAGE.write_text(page(outcomes, equivalent, seed, drawn, at_first), encoding="utf-8")


def page(outcomes: list[Outcome], equivalent: list[str], seed: int, drawn: int, at_first: int) -> str:
    """Return the page; `at_first` of the mutants were killed when they were first run."""
    killed = [each for each in outcomes if each.verdict == "killed"]
    text = _HEAD.format(
        when=datetime.now(UTC).strftime("%Y-%m-%d"), python=platform.python_version(), seed=seed,
        killed=len(killed), judged=len(outcomes), share=share_killed(outcomes), floor=FLOOR,
        at_first=at_first, first_share=at_first / max(1, len(outcomes)),
        notes="".join(f"- {note}\n" for note in _notes(drawn - len(outcomes))),
    )  # fmt: skip
    for group in GROUPS:
        ours = [each.verdict for each in outcomes if each.group == group]
        text += f"| {group} | {len(ours)} | {ours.count('killed')} |\n"
    text += _table(
        "Survivors", "Mutants that no test noticed.",
        [(each.name, ACCEPTED.get(each.name, each.by or "not examined yet"))
         for each in outcomes if each.verdict != "killed"],
    )  # fmt: skip
    text += _table(
        "Equivalent", "Drawn, and replaced: they behave as the original does.",
        [(name, EQUIVALENT[name]) for name in equivalent],
    )  # fmt: skip
    return text + _table(
        "Killed", "And the test that noticed.", [(each.name, f"`{each.by}`") for each in killed]
    )


def _notes(missing: int) -> Iterator[str]:
    if missing:
        yield f"stopped before {missing} were run"
    yield EARLIER


def _table(title: str, about: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return f"\n## {title}\n\nNone.\n"
    lines = "".join(f"| {_cell(name)} | {_cell(said)} |\n" for name, said in rows)
    return f"\n## {title}\n\n{about}\n\n| mutant | |\n|---|---|\n{lines}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
