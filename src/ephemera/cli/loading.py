"""Finding a catalogue by name: `module:object`, or a built-in system such as `identity`.

Modules are looked for as `python -m` does, the current folder first. Importing runs the module's code.
Whatever keeps it from being a catalogue is a usage error that says what was looked for, and what went wrong.
"""

import importlib
import importlib.util
import os
import pkgutil
import sys

import typer

from ephemera.keyspace import Catalogue

SYSTEMS = "ephemera.systems"


def load_catalogue(name: str) -> Catalogue:
    """The catalogue of a name, or `typer.BadParameter`."""
    module, colon, attribute = name.partition(":")
    if not colon:
        module, attribute = _system(name)
    if not module or not attribute:
        raise typer.BadParameter(f"{name!r} is not module:object, as in myservice.keys:catalogue")
    found: object = _imported(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(_no_such(module, attribute, found))
        found = getattr(found, part)
    if not isinstance(found, Catalogue):
        raise typer.BadParameter(f"{name} is no Catalogue, but of type {type(found).__name__}")
    return found


def systems() -> list[str]:
    """The names of the built-in systems."""
    spec = importlib.util.find_spec(SYSTEMS)
    places = spec.submodule_search_locations if spec else None
    return sorted(each.name for each in pkgutil.iter_modules(places or []) if each.ispkg)


def _system(name: str) -> tuple[str, str]:
    known = systems()
    if name not in known:
        raise typer.BadParameter(
            f"there is no system {name!r} (built in: {', '.join(known) or 'none'}); "
            "name a catalogue of your own as module:object, as in myservice.keys:catalogue"
        )
    return f"{SYSTEMS}.{name}.keys", "catalogue"


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


def _no_such(module: str, attribute: str, found: object) -> str:
    there = [name for name, value in vars(found).items() if isinstance(value, Catalogue)]
    have = f"its catalogues: {', '.join(there)}" if there else "it has no catalogue"
    return f"the module {module} has no {attribute}; {have}"
