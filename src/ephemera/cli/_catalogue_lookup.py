"""Finding a catalogue, or jobs, by name: `module:object`, or a built-in system such as `identity`.

Modules are looked for as `python -m` does, the current folder first. Importing runs the module's code.
Whatever keeps it from being what is looked for is a usage error that says what that was, and what went wrong.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from typing import TypeVar

import typer

from ephemera.keyspace import Catalogue
from ephemera.patterns.jobs import Jobs

T = TypeVar("T")

SYSTEMS = "ephemera_services"


def load_catalogue(name: str) -> Catalogue:
    """The catalogue of a name, or `typer.BadParameter`."""
    return _loaded(name, Catalogue, "catalogue", "keys:catalogue")


def load_jobs(name: str) -> Jobs:
    """The jobs of a name, or `typer.BadParameter`."""
    try:
        from ephemera.patterns.jobs import Jobs
    except ModuleNotFoundError as missing:
        raise typer.BadParameter(str(missing)) from missing
    return _loaded(name, Jobs, "Jobs", "jobs:JOBS")


def _loaded(name: str, wanted: type[T], word: str, usual: str) -> T:
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = f"{SYSTEMS}.{_system(name, usual)}.{usual}".partition(":")
    if not module or not attribute:
        raise typer.BadParameter(f"{name!r} is not module:object, as in myservice.{usual}")
    found: object = _imported(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(_no_such(module, attribute, found, wanted, word))
        found = getattr(found, part)
    if not isinstance(found, wanted):
        raise typer.BadParameter(f"{name} is no {wanted.__name__}, but of type {type(found).__name__}")
    return found


def systems() -> list[str]:
    """The names of the built-in systems."""
    spec = importlib.util.find_spec(SYSTEMS)
    places = spec.submodule_search_locations if spec else None
    packages = (each.name for each in pkgutil.iter_modules(places or []) if each.ispkg)
    return sorted(name for name in packages if importlib.util.find_spec(f"{SYSTEMS}.{name}.keys"))


def _system(name: str, usual: str) -> str:
    known = systems()
    if name not in known:
        raise typer.BadParameter(
            f"there is no system {name!r} (built in: {', '.join(known) or 'none'}); "
            f"name one of your own as module:object, as in myservice.{usual}"
        )
    return name


def _imported(module: str) -> object:
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except Exception as problem:
        raise typer.BadParameter(
            f"the module {module} cannot be imported: {type(problem).__name__}: {problem}"
        ) from problem


def _no_such(module: str, attribute: str, found: object, wanted: type, word: str) -> str:
    there = [name for name, value in vars(found).items() if isinstance(value, wanted)]
    plural = word if word.endswith("s") else f"{word}s"
    have = f"its {plural}: {', '.join(there)}" if there else f"it has no {word}"
    return f"the module {module} has no {attribute}; {have}"
