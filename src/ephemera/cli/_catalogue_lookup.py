"""Finding catalogues, jobs and tables by name: `module:object`, or what an installed package registers.

Modules are looked up as `python -m` does, the current folder first. Importing runs the module's code.
Anything that cannot be loaded is a usage error that says what went wrong and which names there are.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from ephemera.cli import _plugins
from ephemera.keyspace import Catalogue

if TYPE_CHECKING:
    from ephemera.patterns.jobs import Jobs

T = TypeVar("T")


def load_catalogue(name: str) -> Catalogue:
    """The catalogue of a name, or `typer.BadParameter`."""
    return _lookup(name, _plugins.CATALOGUES, Catalogue, "catalogue", "keys:catalogue")


def load_jobs(name: str) -> Jobs:
    """The jobs of a name, or `typer.BadParameter`."""
    try:
        from ephemera.patterns.jobs import Jobs
    except ModuleNotFoundError as missing:
        raise typer.BadParameter(str(missing)) from missing
    return _lookup(name, _plugins.JOBS, Jobs, "Jobs", "jobs:JOBS")


def load_declaration(name: str) -> object:
    """The declaration of a name that has SQL tables, or `typer.BadParameter`."""
    found = _lookup(name, _plugins.JOBS, object, "declaration", "tables:ONCE")
    if not hasattr(found, "sql_schema"):
        raise typer.BadParameter(
            f"{name} is a {type(found).__name__}, which has no SQL tables; name a Jobs, Planner or OnceGuard"
        )
    return found


def _lookup(name: str, group: str, expected: type[T], word: str, usual: str) -> T:
    module, colon, attribute = name.partition(":")
    found: object = (
        _import(module, attribute, expected, word, usual) if colon else _plugin(name, group, usual)
    )
    if not isinstance(found, expected):
        raise typer.BadParameter(f"{name} is a {type(found).__name__}, not a {expected.__name__}")
    return found


def _plugin(name: str, group: str, usual: str) -> object:
    points = _plugins.registered(group)
    if name not in points:
        raise typer.BadParameter(
            f"no installed package registers {name!r} (registered: {', '.join(points) or 'none'}); "
            f"name your own as module:object, as in myservice.{usual}"
        )
    return _plugins.load(points[name])


def _import(module: str, attribute: str, expected: type, word: str, usual: str) -> object:
    if not module or not attribute:
        raise typer.BadParameter(f"{module}:{attribute} is not module:object, as in myservice.{usual}")
    found: object = _import_module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(_no_such(module, attribute, found, expected, word))
        found = getattr(found, part)
    return found


def _import_module(module: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except Exception as problem:
        raise typer.BadParameter(
            f"the module {module} cannot be imported: {type(problem).__name__}: {problem}"
        ) from problem


def _no_such(module: str, attribute: str, found: object, expected: type, word: str) -> str:
    there = [name for name, value in vars(found).items() if isinstance(value, expected)]
    plural = word if word.endswith("s") else f"{word}s"
    have = f"its {plural}: {', '.join(there)}" if there else f"it has no {word}"
    return f"the module {module} has no {attribute}; {have}"
