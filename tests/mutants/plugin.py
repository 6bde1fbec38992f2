"""A pytest plugin (`-p tests.mutants.plugin`) with two uses, each chosen by a variable of the environment.

`MUTANTS_TRACE` names a folder: record which lines and which Lua scripts each test executes in this process,
and how long it takes. `MUTANTS_PLAN` names a file with the tests to run, or files of them, in this order, and
for how many seconds tests are started: which one failed, or null, is written to the same file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

from tests.mutants.targets import ROOT

LUA = tuple(sorted(ROOT.glob("src/ephemera/**/*.lua")))


class Trace:
    """Records what each test executes; one file of each kind for each process of the run."""

    def __init__(self, folder: Path) -> None:
        name = f"{time.time_ns()}-{os.getpid()}"
        self._tests = folder / f"{name}.jsonl"
        self._lines = Coverage(
            data_file=str(folder / f"{name}.coverage"), config_file=False, concurrency=["thread", "greenlet"],
            include=[f"{ROOT}/src/*", f"{ROOT}/services/src/*"],
        )  # fmt: skip
        self._scripts: set[str] = set()
        self._lines.start()

    def pytest_sessionstart(self) -> None:
        """Note each use of a script: to send it, its digest or its source is read."""
        from ephemera.wire import Script  # not before its lines are recorded

        source = Script.__dict__["source"]

        def noting(slot: Any) -> property:
            def read(script: Any) -> Any:
                self._scripts.update(_files_of(source.__get__(script)))
                return slot.__get__(script)

            return property(read, slot.__set__)

        for name in ("sha", "source"):
            setattr(Script, name, noting(Script.__dict__[name]))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Attribute to a test what is executed from its set-up until its teardown."""
        self._lines.switch_context(item.nodeid)
        self._scripts.clear()
        began = time.monotonic()
        try:
            return (yield)
        finally:
            seconds = round(time.monotonic() - began, 3)
            with self._tests.open("a", encoding="utf-8") as log:
                row = {"test": item.nodeid, "seconds": seconds, "scripts": sorted(self._scripts)}
                log.write(json.dumps(row) + "\n")
            self._lines.switch_context("")

    def pytest_unconfigure(self) -> None:
        """Keep the lines."""
        self._lines.stop()
        self._lines.save()


@cache
def _files_of(source: str) -> frozenset[str]:
    """The files that a script was put together from."""
    return frozenset(path.relative_to(ROOT).as_posix() for path in LUA if path.read_text("utf-8") in source)


class Plan:
    """Runs the tests of a plan until one fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        plan = json.loads(path.read_text(encoding="utf-8"))
        self._order = {test: number for number, test in enumerate(plan["tests"], 1)}
        self._until = time.monotonic() + plan["seconds"]
        self._failed: str | None = None
        self._started = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what was planned, in that order."""
        items[:] = sorted(filter(self._place, items), key=self._place)

    def _place(self, item: pytest.Item) -> int:
        """The place of a test or of its file, from 1; 0 for others."""
        return self._order.get(item.nodeid) or self._order.get(item.nodeid.partition("::")[0], 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that fails, including in its set-up or teardown."""
        self._failed = self._failed or (report.nodeid if report.failed else None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be collected."""
        self._failed = self._failed or (report.nodeid if report.failed else None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Start no more tests after the time; a test that ends the process has failed."""
        self._started = True
        self._say(item.nodeid)
        result = yield
        if time.monotonic() > self._until:
            item.session.shouldstop = "the time of the plan is over"
        return result

    def pytest_unconfigure(self) -> None:
        """Say what came out; a run without a test has said nothing about the mutant."""
        self._say(self._failed or (None if self._started else ""))

    def _say(self, failed: str | None) -> None:
        self._path.write_text(json.dumps({"failed": failed}), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record, or follow a plan."""
    if "PYTEST_XDIST_WORKER" not in os.environ and config.getoption("numprocesses", None):
        return  # the workers run the tests
    if folder := os.environ.get("MUTANTS_TRACE"):
        config.pluginmanager.register(Trace(Path(folder)))
    if plan := os.environ.get("MUTANTS_PLAN"):
        config.pluginmanager.register(Plan(Path(plan)))
