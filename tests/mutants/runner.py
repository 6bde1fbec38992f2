"""Runs the tests of one mutant at a time in a copy of the tree."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from tests.mutants.executions import OPTIONS
from tests.mutants.mutations import Mutation
from tests.mutants.targets import ROOT

Verdict = Literal["killed", "survived", "unclear"]
_IGNORED = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "site")
_ONE_TEST = 40
"""Seconds after which a test has failed, and the process ends."""
_ATTEMPTS = 3
_LIMITS = ("-x", "-p", "no:xdist", "--timeout", str(_ONE_TEST), "--timeout-method", "thread")
_times = count()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one mutant."""

    name: str
    group: str
    digest: str
    """Of the file that was changed."""
    verdict: Verdict
    by: str
    """The test that noticed, or why there is no verdict."""
    seconds: float


class Copy:
    """A copy of a tree, in which one file at a time is changed; tests are started for this many seconds."""

    def __init__(self, folder: Path, seconds: float, root: Path = ROOT) -> None:
        self._root = folder / "tree"
        self._plan = folder / "plan.json"
        self._seconds = seconds
        shutil.copytree(root, self._root, ignore=_IGNORED)

    def judge(self, mutation: Mutation, tests: list[str]) -> tuple[Verdict, str]:
        """Run the tests of a mutant, and return what came out and the test that noticed.

        A failure counts if the same test fails again, alone, and passes on the original.
        """
        original = (self._root / mutation.path).read_text(encoding="utf-8")
        mutant = mutation.apply(original)
        if not tests:
            return "survived", "no test executes it"
        left, suspect = tests, ""
        for _ in range(_ATTEMPTS):
            failed = self._run(mutation.path, mutant, original, left) if left else ""
            if failed is None:
                return "survived", ""
            if not left:
                break
            suspect = failed if "::" in failed else _of_file(left, failed)
            fails_again = self._run(mutation.path, mutant, original, [suspect]) is not None
            if fails_again and self._run(mutation.path, original, original, [suspect]) is None:
                return "killed", failed or "the tests cannot be collected"
            left = [test for test in left if test != suspect]
        return "unclear", f"`{suspect}` and others are not reliable"

    def _run(self, path: str, text: str, original: str, tests: list[str]) -> str | None:
        self._write(path, text)
        try:
            return self._pytest(tests)
        finally:
            self._write(path, original)

    def _write(self, path: str, text: str) -> None:
        file = self._root / path
        file.write_text(text, encoding="utf-8")
        # Cached bytecode is recognized by time and size, and a mutant may have the size of the original.
        moment = 1_000_000_000 + next(_times) * 10
        os.utime(file, (moment, moment))

    def _pytest(self, tests: list[str]) -> str | None:
        """Return the test or file that failed, '' when the run did not come to any, or None."""
        self._plan.write_text(json.dumps({"tests": tests, "seconds": self._seconds}), encoding="utf-8")
        paths = (self._root / "src", self._root / "services/src", self._root, ROOT)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "MUTANTS_PLAN": str(self._plan),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *OPTIONS, *_LIMITS, f"--rootdir={self._root}", *files],
            cwd=self._root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            process.wait(self._seconds + 2 * _ONE_TEST)
        with suppress(ProcessLookupError):  # what it has started, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        failed: str | None = json.loads(self._plan.read_text(encoding="utf-8")).get("failed", "")
        return failed


def _of_file(tests: list[str], file: str) -> str:
    """The first test of a file that cannot be collected; of all, if nothing can."""
    return next((test for test in tests if test.startswith(f"{file}::")), tests[0])
