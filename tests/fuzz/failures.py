"""Cases that failed, as files: what was tried, the case as Python writes it, and what went wrong."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any

from tests.fuzz.running import Failure

FOLDER = Path("build/fuzz")
_LINE = "# "


def save(failure: Failure, folder: Path = FOLDER) -> Path:
    """Write a failure to a file of its own; its path."""
    case = repr(failure.case)
    name = f"{failure.area}-{failure.trial.replace(' ', '-')}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{name}.txt"
    error = "".join(f"{_LINE}{line}\n" for line in failure.error.splitlines())
    place.write_text(f"{failure.area}\n{failure.trial}\n{case}\n{error}", errors="backslashreplace")
    return place


def load(place: Path) -> tuple[str, str, Any]:
    """The area, the trial and the case of a file."""
    area, trial, case = [line for line in place.read_text().split("\n") if not line.startswith(_LINE)][:3]
    return area, trial, ast.literal_eval(case)


def replay_command(place: Path) -> str:
    """What to type to try it again."""
    return f".venv/bin/python -m tests.fuzz --replay {place}"
