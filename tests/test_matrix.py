"""The split of the test run: nothing falls between `make test` and `make test-matrix`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.matrix import MARKED, TESTS

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")


def test_what_make_test_leaves_out_runs_elsewhere() -> None:
    """The targets' marker expressions are complements of each other."""
    expressions = re.findall(r'-m "([^"]+)" \$\(ARGS\)', MAKEFILE)
    assert expressions == ["not matrix and not campaign and not wheels", "matrix or campaign"]
    assert "-m wheels" in MAKEFILE
    script = (Path(__file__).parents[1] / ".ci/run").read_text(encoding="utf-8")
    run = re.findall(r"^make (?:--jobs 2 )?((?:test|coverage)[a-z -]*)$", script, re.MULTILINE)
    assert " ".join(run).split() == ["test", "test-matrix", "test-wheels", "coverage"]


def test_what_is_marked_is_there() -> None:
    """Each file or folder that is marked as a whole exists."""
    assert [name for name in MARKED if not (TESTS / name).exists()] == []
