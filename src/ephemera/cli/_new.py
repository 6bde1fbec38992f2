"""`ephemera new`: write a small FastAPI service to begin with, which passes its own tests."""

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from ephemera.cli._command import Command

_TEMPLATE_NAME = "myservice"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_FOLDERS = {"service.py": _TEMPLATE_NAME, "jobs.py": _TEMPLATE_NAME, "test_service.py": "tests"}
"""Where a file belongs in the new project; the others are at its top."""

Name = Annotated[
    str,
    typer.Argument(
        help="The name of the service, its folder and its package.",
        metavar="NAME",
        envvar="EPHEMERA_SERVICE_NAME",
    ),
]


def new(name: Name) -> None:
    """Write a new service into a folder of its name: FastAPI, sessions, a cache, limits, a job and tests.

    The folder has a package, tests that start their own servers, a compose file and a README with the next
    steps. It must not exist, or be empty. Nothing else is changed.
    """
    _check(name)
    folder = Path.cwd() / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise typer.BadParameter(
            f"{folder} exists and is not an empty folder: choose another name, or remove it",
            param_hint="NAME",
        )
    try:
        for path, text in sorted(_project(name).items()):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
            typer.echo(f"{name}/{path}")
    except OSError as problem:
        typer.echo(f"ephemera: {folder} cannot be written: {problem.strerror}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"Next: cd {name} && pip install -e '.[test]' && pytest", err=True)


def _check(name: str) -> None:
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        advice = "use at most 40 lower-case letters, digits and _, beginning with a letter, as in web_shop"
        raise typer.BadParameter(f"{name!r} cannot name a Python package: {advice}", param_hint="NAME")
    if name in sys.stdlib_module_names or name in ("ephemera", "fastapi", "msgspec", "tests"):
        raise typer.BadParameter(
            f"{name!r} is the name of a module that the service needs: choose another", param_hint="NAME"
        )


def _project(name: str) -> dict[str, str]:
    """The text of every file by its path."""
    found = {f"{_TEMPLATE_NAME}/__init__.py": '"""The service myservice."""\n'}
    for template in files("ephemera.cli").joinpath("new_service").iterdir():
        file = template.name.removesuffix(".txt")
        found["/".join(filter(None, (_FOLDERS.get(file), file)))] = template.read_text(encoding="utf-8")
    return {
        path.replace(_TEMPLATE_NAME, name): text.replace(_TEMPLATE_NAME, name) for path, text in found.items()
    }


COMMAND = Command("new", new, examples=(("a service in ./shop", "shop"),))
