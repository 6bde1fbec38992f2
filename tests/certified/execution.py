"""One run of a suite: stock or ours, all of it or some tests; its outcomes by test."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.certified.environment import BUILD, prepare, unpack
from tests.certified.suite import FOLDER, ROOT, Suite, fill, pattern

STOCK, OURS = "stock", "ours"
_OWN_PLUGINS = ("certified_outcomes", "pytest_timeout")
_OPTIONS = ("-q", "-o", "addopts=", "--timeout", "120", "--tb=short")


@dataclass(frozen=True)
class Outcome:
    """What came of a test: passed, failed, skipped or xfailed; and why."""

    result: str
    reason: str = ""


@dataclass(frozen=True)
class Execution:
    """The outcomes of a run, by test id."""

    outcomes: Mapping[str, Outcome]
    seconds: float


def execute(suite: Suite, mode: str, selection: Iterable[str] = (), *, label: str = "") -> Execution:
    """Run the suite, or the selected ids or arguments of it, in a process of its own.

    `label` names the log and the sources of a run that is not the only one of its mode.
    """
    started, run = monotonic(), f"{mode}{label}"
    python = prepare(suite)
    with ExitStack() as stack:
        values = suite.servers(stack)
        root = unpack(suite, run, values)
        file, log = _files(suite, run)
        command = [str(python), "-m", "pytest", *_arguments(suite, mode, tuple(selection), values)]
        environment = _environment(suite, file, values)
        with log.open("w", encoding="utf-8") as output:
            stopped = _run(command, root, environment, output.fileno(), suite.seconds)
    outcomes = _read(file)
    if stopped:
        outcomes[f"(the run, see {log.relative_to(ROOT)})"] = Outcome("failed", stopped)
    return Execution(outcomes, monotonic() - started)


def _files(suite: Suite, run: str) -> tuple[Path, Path]:
    folder = BUILD / "outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{suite.name}-{run}.jsonl"
    file.unlink(missing_ok=True)
    return file, file.with_suffix(".log")


def _arguments(
    suite: Suite, mode: str, selection: tuple[str, ...], values: Mapping[str, str]
) -> Iterable[str]:
    plugins = [*_OWN_PLUGINS, *suite.plugins, *([suite.ours] if mode == OURS and suite.ours else [])]
    yield from _OPTIONS
    for plugin in plugins:
        yield from ("-p", plugin)
    yield from (fill(each, values) for each in suite.arguments)
    if not any(".py" in each for each in selection):  # else it names its tests itself
        yield from (_path(test) for test in suite.tests)
    yield from selection
    if any(test.startswith("contracts/") for test in suite.tests):
        yield from ("--rootdir", str(FOLDER), "--confcutdir", str(FOLDER / "contracts"))


def _path(test: str) -> str:
    return str(FOLDER / test) if test.startswith("contracts/") else test


def _environment(suite: Suite, file: Path, values: Mapping[str, str]) -> dict[str, str]:
    paths = [str(suite.plugin_folder), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CERTIFIED_OUTCOMES": str(file),
        "CERTIFIED_LEFT_OUT": json.dumps([pattern(each).pattern for each in suite.left_out]),
        **{f"CERTIFIED_{name.upper()}": value for name, value in values.items()},
        **{name: fill(value, values) for name, value in suite.environment.items()},
    }


def _run(command: list[str], root: Path, environment: dict[str, str], output: int, seconds: int) -> str:
    """Run pytest; return why its outcomes are not all there, or nothing."""
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, stdout=output, stderr=output, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds} s"
    return "" if done.returncode in (0, 1) else f"pytest ended with code {done.returncode}"


def _read(file: Path) -> dict[str, Outcome]:
    """The worst of a test's phases: a failure while tearing down counts."""
    found: dict[str, Outcome] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        entry = json.loads(line)
        if found.get(entry["test"], Outcome("")).result != "failed":
            found[entry["test"]] = Outcome(entry["outcome"], entry["reason"])
    return found
