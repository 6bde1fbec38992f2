"""The top-level package offers every name that a service declares or catches, and loads it on first use."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ephemera
from ephemera import errors, patterns
from tests.docs.pages import ROOT
from tools.reference.api_page import public_modules

PATTERNS = [each.name for each in pkgutil.iter_modules(patterns.__path__) if not each.name.startswith("_")]


@pytest.mark.parametrize("name", ephemera.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    """Each name in `__all__` resolves, and is the object of the package that defines it."""
    value = getattr(ephemera, name)
    if name in ephemera._PATTERN_OF:
        assert value is getattr(import_module(f"ephemera.patterns.{ephemera._PATTERN_OF[name]}"), name)
    assert name in dir(ephemera)


def test_the_lazy_table_is_what_type_checkers_see() -> None:
    """The table, the imports under TYPE_CHECKING and `__all__` name the same objects."""
    imported = {
        alias.name: node.module
        for node in ast.walk(ast.parse(Path(ephemera.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ephemera.patterns.")
        for alias in node.names
    }
    table = {name: f"ephemera.patterns.{pattern}" for name, pattern in ephemera._PATTERN_OF.items()}
    assert imported == table
    assert table.keys() < set(ephemera.__all__)
    assert len(ephemera.__all__) == len(set(ephemera.__all__))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_declaration_is_at_the_top(pattern: str) -> None:
    """A pattern's declarations, and the option objects they take, can be imported from ephemera."""
    module = import_module(f"ephemera.patterns.{pattern}")
    wanted = {name for declaration in _declarations(module) for name in _needed(declaration, module)}
    assert wanted <= set(ephemera.__all__)


def test_every_error_is_at_the_top() -> None:
    """Each error in errors.py is public there and in ephemera."""
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.EphemeraError)
    }
    assert defined == set(errors.__all__)
    assert defined <= set(ephemera.__all__)


def test_only_a_response_is_raised_that_is_no_ephemera_error() -> None:
    """The page of errors names every public exception that `except EphemeraError` does not catch."""
    modules = [name for group in public_modules().values() for name in group if ".adapters." not in name]
    exceptions = {
        value
        for module in map(import_module, modules)
        for value in (getattr(module, name) for name in getattr(module, "__all__", ()))
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    others = {each.__name__ for each in exceptions if not issubclass(each, errors.EphemeraError)}
    assert others == {"Problem"}
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    introduction = page.partition("```python")[0]
    assert all(f"`{name}`" in introduction for name in others)


def test_errors_are_defined_in_one_module() -> None:
    """No other module of the library defines an `EphemeraError`."""
    sources = Path(ephemera.__file__).parent.rglob("*.py")
    known = set(errors.__all__)
    elsewhere = {
        f"{source.name}: {node.name}"
        for source in sources
        if source.name != "errors.py"
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in known for base in node.bases)
    }
    assert elsewhere == set()


def test_no_two_classes_share_a_name() -> None:
    """A class of the library can be found by its name alone; adapters name theirs as each framework does."""
    folder = Path(ephemera.__file__).parent
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for source in set(folder.rglob("*.py")) - set((folder / "adapters").rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(str(source.relative_to(folder)))
    assert {name: sources for name, sources in defined.items() if len(sources) > 1} == {}


def test_importing_ephemera_loads_no_pattern() -> None:
    """Patterns, and the packages they need, are loaded when their names are first used."""
    loaded = _python("import sys, ephemera; print(*sys.modules)").stdout.split()
    assert "ephemera.keyspace" in loaded
    assert not [name for name in loaded if name.startswith(("ephemera.patterns", "sqlalchemy", "jwt"))]


@pytest.mark.parametrize(
    ("package", "name", "extra"), [("sqlalchemy", "Jobs", "jobs"), ("jwt", "Tokens", "tokens")]
)
def test_a_missing_extra_is_named(package: str, name: str, extra: str) -> None:
    """A pattern whose optional packages are missing says which extra installs them."""
    outcome = _python(f"import sys; sys.modules[{package!r}] = None\nfrom ephemera import {name}")
    assert outcome.returncode == 1
    assert f"need {package}: pip install 'ephemera-data[{extra}]'" in outcome.stderr
    assert "MissingExtra" in outcome.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    """`hasattr` and star imports see nothing that is not there."""
    assert not hasattr(ephemera, "NoSuchPattern")


def _declarations(module: ModuleType) -> Iterator[type]:
    """The classes of a pattern that a service declares in its catalogue."""
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.isclass(value) and hasattr(value, "bind") and "catalogue" in _annotations(value):
            yield value


def _needed(declaration: type, module: ModuleType) -> Iterator[str]:
    """A declaration, and the pattern's public classes among the types of its parameters."""
    yield declaration.__name__
    for annotation in _annotations(declaration).values():
        for name in re.findall(r"\w+", re.sub(r"Callable\[.*\]", "", str(annotation))):
            if name in module.__all__ and not getattr(getattr(module, name), "_is_protocol", False):
                yield name


def _annotations(declaration: type) -> dict[str, Any]:
    parameters = inspect.signature(declaration).parameters
    return {name: parameter.annotation for name, parameter in parameters.items()}


def _python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
