"""Failed cases as files: the trial, the case as a Python literal, and the error."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any

from tests.fuzz.runner import Failure

FOLDER = Path("build/fuzz")
_LINE = "# "


def save(failure: Failure, folder: Path = FOLDER) -> Path:
    """Write a failure to a file; return its path."""
    case = repr(failure.case)
    name = f"{failure.area}-{failure.trial.replace(' ', '-')}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.txt"
    error = "".join(f"{_LINE}{line}\n" for line in failure.error.splitlines())
    path.write_text(f"{failure.area}\n{failure.trial}\n{case}\n{error}", errors="backslashreplace")
    return path


def load(path: Path) -> tuple[str, str, Any]:
    """Return the area, the trial and the case of a file."""
    area, trial, case = [line for line in path.read_text().split("\n") if not line.startswith(_LINE)][:3]
    return area, trial, ast.literal_eval(case)


def replay_command(path: Path) -> str:
    """Return the command that replays a case."""
    return f".venv/bin/python -m tests.fuzz --replay {path}"
