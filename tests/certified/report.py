"""What came of the suites: a record of each, and docs/proof/certified.md, rendered from all records."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any

from tests.certified.comparison import PASSED, count, reasons
from tests.certified.environment import digest
from tests.certified.execution import Execution
from tests.certified.suite import FOLDER, ROOT, Suite, declared

PAGE = ROOT / "docs/proof/certified.md"
RECORDS = FOLDER / "recorded"
WHOLE = RECORDS / "whole.json"
"""Of the last run of all suites."""
Record = Mapping[str, Any]
_HEAD = """\
# Certified by others' tests

Each adapter runs the test suite of the library that it plugs into: the source distribution of the named
version, unchanged but for the texts named below (mostly addresses of servers), once stock and once with ours.
A test that passes stock and not with ours is a defect, and fails `make certify`, which writes this page.
Deliberate differences, and files and groups of tests that do not run, are named below with their reasons; the
table counts what is named. All of it took {minutes} minutes on {day}.

| suite | what | version | pass stock | pass with ours | skipped | not run | differences | on |
|---|---|---|---|---|---|---|---|---|
"""


def record(suite: Suite, stock: Execution | None, ours: Execution, again: int) -> None:
    """Keep what a whole run has shown; `again` tests differed at first and not when run alone."""
    reference = (stock or ours).outcomes
    failing = sorted(test for test, each in reference.items() if each.result not in (PASSED, "skipped"))
    kept = {
        "version": suite.version,
        "sha256": digest(suite),
        "on": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "seconds": {"stock": round(stock.seconds) if stock else 0, "ours": round(ours.seconds)},
        "stock": count(stock.outcomes) if stock else {},
        "ours": count(ours.outcomes),
        "skipped": reasons(ours.outcomes, "skipped", "xfailed"),
        "failing_stock": reasons(stock.outcomes, "failed") if stock else {},
        "again": again,
        "not_passing_stock": failing if stock else [],
    }
    path = RECORDS / f"{suite.name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def record_whole(seconds: float) -> None:
    """Keep how long a run of all suites took."""
    kept = {"on": datetime.now(UTC).strftime("%Y-%m-%d"), "seconds": round(seconds)}
    WHOLE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def recorded(suite: Suite) -> Record:
    """Return the record of a suite; empty if there is none of its version."""
    path = RECORDS / f"{suite.name}.json"
    kept: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return kept if kept.get("version") == suite.version else {}


def write_page() -> None:
    """Render the page from all records."""
    PAGE.write_text(page([(suite, recorded(suite)) for suite in declared()]), encoding="utf-8")


def page(results: Iterable[tuple[Suite, Record]]) -> str:
    """Return the page of these suites and their records."""
    results = list(results)
    whole = json.loads(WHOLE.read_text(encoding="utf-8"))
    minutes = ceil(whole["seconds"] / 60)
    head = _HEAD.format(minutes=minutes, day=whole["on"])
    rows = "".join(_row(suite, kept) for suite, kept in results)
    return head + rows + "".join(_section(suite, kept) for suite, kept in results)


def _row(suite: Suite, kept: Record) -> str:
    stock = str(kept["stock"].get(PASSED, 0)) if kept and suite.stock else "-" if kept else "not run"
    not_run = len(suite.left_out) or ""
    ours, skipped = (kept["ours"].get(PASSED, 0), sum(kept["skipped"].values())) if kept else ("not run", "")
    shown = (f"[{suite.name}](#{_anchor(suite)})", suite.what, f"{suite.distribution} {suite.version}",
             stock, ours, skipped, not_run, len(suite.differences), kept.get("on", ""))  # fmt: skip
    return f"| {' | '.join(map(str, shown))} |\n"


def _section(suite: Suite, kept: Record) -> str:
    lines = [f"\n## {suite.name}\n", f"{suite.distribution} {suite.version}, {_files(suite)}."]
    if kept:
        lines += [_timing(suite, kept)]
        if kept.get("failing_stock"):
            lines += ["What fails stock here is not asked of ours."]
    lines += _table("difference", "why", [(f"`{test}`", why) for test, why in suite.differences.items()])
    lines += _table("not run", "why", [(f"`{test}`", why) for test, why in suite.left_out.items()])
    replaced = [(f"`{old}`", f"`{new}`") for old, new in suite.replacements.items()]
    lines += _table("text of the tests", "replaced by", replaced)
    skipped, failing = kept.get("skipped", {}), kept.get("failing_stock", {})
    lines += _table("skipped", "reason", [(str(many), reason) for reason, many in skipped.items()])
    lines += _table("fail stock", "with", [(str(many), f"`{reason}`") for reason, many in failing.items()])
    return "\n".join(lines) + "\n"


def _files(suite: Suite) -> str:
    selected = f", run with `{' '.join(suite.arguments)}`" if suite.arguments else ""
    return ", ".join(f"`{test}`" for test in suite.tests) + selected


def _timing(suite: Suite, kept: Record) -> str:
    taken = kept["seconds"]
    stock = f"stock {taken['stock']} s, " if suite.stock else ""
    again = f" {kept['again']} tests differed and were run again, alone." if kept["again"] else ""
    return f"Python {kept['python']}: {stock}ours {taken['ours']} s.{again}"


def _table(left: str, right: str, rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    shown = [f"| {one} | {' '.join(other.split()).replace('|', '/')} |" for one, other in rows]
    return ["", f"| {left} | {right} |", "|---|---|", *shown]


def _anchor(suite: Suite) -> str:
    return suite.name.lower().replace(" ", "-")
