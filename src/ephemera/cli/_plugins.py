"""Plug-ins by entry point: commands, catalogues, jobs and workers that installed packages register.

    [project.entry-points."ephemera.commands"]
    serve = "myservice.commands:SERVE"          # a Command

    [project.entry-points."ephemera.catalogues"]
    shop = "myservice.keys:catalogue"           # `ephemera audit --catalogue shop`

    [project.entry-points."ephemera.jobs"]
    shop = "myservice.jobs:JOBS"                # `ephemera jobs list shop`

    [project.entry-points."ephemera.workers"]
    shop = "myservice.worker:run"               # `ephemera worker shop`: run(options: WorkerOptions) -> int

A plug-in that cannot be loaded is reported in one line and the other commands still work.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

COMMANDS = "ephemera.commands"
CATALOGUES = "ephemera.catalogues"
JOBS = "ephemera.jobs"
WORKERS = "ephemera.workers"


def registered(group: str) -> dict[str, EntryPoint]:
    """What installed packages register in a group, by name, in alphabetical order."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def load(point: EntryPoint) -> Any:
    """The registered object, or a usage error that names the package which registered it."""
    try:
        return point.load()
    except Exception as problem:
        package = point.dist.name if point.dist is not None else "an installed package"
        raise typer.BadParameter(
            f"{point.name!r} is registered by {package} as {point.value}, which cannot be loaded: "
            f"{type(problem).__name__}: {problem}"
        ) from problem
