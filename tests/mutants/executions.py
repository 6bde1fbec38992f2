"""Which tests concern a mutant: those that execute its line or script, the cheapest and most specific first.

A pass over the tests (`plugin.Trace`) records what each executes. It is repeated when the code has changed;
when tests have changed, only those files are run. What services execute in processes of their own is not
recorded: `targets` names the tests.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from coverage.numbits import numbits_to_nums

from tests.mutants.mutations import Mutation
from tests.mutants.targets import GROUPS, ROOT, files, of_services, traced

FOLDER = ROOT / "build/mutants/executions"
OPTIONS = (
    "-q", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider",
    "-m", "not matrix and not campaign and not wheels",
)  # fmt: skip
"""Of pytest: the tests of `make test`."""
_AT_MOST = 200
"""Tests for one mutant."""


def digest(*paths: str) -> str:
    """Return the digest of files, by their paths from the root."""
    return hashlib.sha256(b"".join((ROOT / path).read_bytes() for path in paths)).hexdigest()[:16]


@dataclass(slots=True)
class Executions:
    """What each test executes, as far as it was recorded."""

    seconds: dict[str, float] = field(default_factory=dict)
    scripts: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The tests of each Lua file."""
    lines: defaultdict[str, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """The lines of each Python file that each test executes."""
    total: Counter[str] = field(default_factory=Counter)
    """How many lines and scripts each test executes."""

    def concerning(self, mutation: Mutation) -> list[str]:
        """The tests to run, those of a file together; of services, whole files."""
        path = mutation.path
        if path.endswith(".lua"):
            chosen = self._sorted({test: 1 / self.total[test] for test in self.scripts[path]})
        else:
            share = {test: _count(lines) / self.total[test] for test, lines in self.lines[path].items()}
            wanted = _near(mutation, (ROOT / path).read_text(encoding="utf-8"))
            near = {
                test: share[test]
                for test, lines in self.lines[path].items()
                if wanted.intersection(numbits_to_nums(lines))
            }
            chosen = self._sorted(near or share)
        grouped: dict[str, list[str]] = {}
        for test in chosen[:_AT_MOST]:
            grouped.setdefault(_file(test), []).append(test)
        return [*chain(*grouped.values()), *of_services(path)]

    def _sorted(self, share: dict[str, float]) -> list[str]:
        """Cheap tests and those that execute little else first; of a file or a parametrized test, some."""
        cost = {test: max(self.seconds[test], 0.02) / part for test, part in share.items()}
        seen: Counter[str] = Counter()
        ranked = []
        for test in sorted(cost, key=lambda test: cost[test]):
            function = test.partition("[")[0]
            ranked.append((seen[function] // 3 + seen[_file(test)] // 25, cost[test], test))
            seen.update((function, _file(test)))
        return [test for _, _, test in sorted(ranked)]


def _file(test: str) -> str:
    return test.partition("::")[0]


def _count(lines: bytes) -> int:
    return int.from_bytes(lines, "little").bit_count()


def _near(mutation: Mutation, text: str) -> set[int]:
    """The lines that a test of a mutant executes: its statement's, or of what is run by imports, its uses."""
    statement, function = _enclosing(ast.parse(text), mutation.line)
    if function is not None and statement is not function:
        return _own_lines(statement)
    if function is not None:  # a default of it
        return {line for each in function.body for line in _own_lines(each)}
    names = [each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and not _is_read(each)]
    uses = re.compile(rf"\b(?:{'|'.join(names)})\b" if names else "$^")
    mentioned = {number for number, line in enumerate(text.splitlines(), 1) if uses.search(line)}
    return mentioned - _own_lines(statement)


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _own_lines(statement: ast.stmt) -> set[int]:
    """The lines of a statement, without those of the statements in it."""
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return set(range(statement.lineno, max(end, statement.lineno) + 1))


def _enclosing(tree: ast.Module, line: int) -> tuple[ast.stmt, ast.FunctionDef | ast.AsyncFunctionDef | None]:
    """The innermost statement at a line, and the innermost function."""
    found, function = tree.body[0], None
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function = node
    return found, function


def record(processes: int) -> Executions:
    """Run the tests that have changed since they were recorded, a folder at a time, and read the records."""
    code = digest(*(path for group in GROUPS for path in files(group)))
    for run in _runs():
        if run["code"] != code:
            shutil.rmtree(run["folder"])
    known = {pair for run in _runs() for pair in run["tests"].items()}
    stale = defaultdict(list)
    for test in traced():
        if (test, digest(test)) not in known:
            stale[Path(test).parent].append(test)
    for folder, tests in stale.items():
        sys.stdout.write(f"recording what {len(tests)} files of {folder} execute\n")
        sys.stdout.flush()
        _record(tests, code, processes)
    return _read()


def _record(tests: list[str], code: str, processes: int) -> None:
    folder = FOLDER / str(time.time_ns())
    folder.mkdir(parents=True)
    run = {"code": code, "tests": {test: digest(test) for test in tests}, "folder": str(folder)}
    paths = os.pathsep.join(str(ROOT / part) for part in ("src", "services/src", ""))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "-n", str(processes), "--dist", "loadfile", *tests],
        cwd=ROOT, check=False, stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths, "MUTANTS_TRACE": str(folder)},
    )  # fmt: skip
    if ended.returncode > 1:  # a test that fails is recorded like others
        raise SystemExit(f"pytest ended with {ended.returncode}; what do these tests say? {' '.join(tests)}")
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")


def _runs() -> list[dict[str, Any]]:
    """The runs that ended, the oldest first."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*/run.json"))]


def _read() -> Executions:
    found = Executions()
    latest = {test: run["folder"] for run in _runs() for test in run["tests"] if (ROOT / test).exists()}
    for folder in sorted(set(latest.values())):
        for log in Path(folder).glob("*.jsonl"):
            for row in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
                if latest.get(_file(row["test"])) == folder:
                    found.seconds[row["test"]] = row["seconds"]
                    found.total[row["test"]] += len(row["scripts"])
                    for script in row["scripts"]:
                        found.scripts[script].add(row["test"])
        for data in Path(folder).glob("*.coverage*"):
            for path, test, lines in _executed(data):
                if latest.get(_file(test)) == folder and test in found.seconds:
                    found.total[test] += _count(lines)
                    found.lines[path][test] = lines
    return found


def _executed(data: Path) -> Iterator[tuple[str, str, bytes]]:
    query = (
        "SELECT path, context, numbits FROM line_bits"
        " JOIN file ON file.id = file_id JOIN context ON context.id = context_id"
    )
    with closing(sqlite3.connect(data)) as database:
        rows: Iterable[tuple[str, str, bytes]] = database.execute(query)
        for path, test, lines in rows:
            yield Path(path).relative_to(ROOT).as_posix(), test, lines
