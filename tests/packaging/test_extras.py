"""Each extra brings what its modules import, by their source: no environment is installed for this."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, distributions
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement

from tools.release import installs, versions

_PROJECT = tomllib.loads((versions.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_SOURCE = versions.ROOT / "src"


@pytest.mark.parametrize("extra", ["", *installs.small(versions.extras())])
def test_an_extra_brings_what_its_modules_import(extra: str) -> None:
    """Every import at the top of a promised module, or of what it imports, is brought by the extra."""
    brought = distributions_of(extra)
    missing = {
        f"{importer} imports {name}"
        for importer, name in imports_of(installs.promised(extra))
        if (owner := owner_of(name)) is not None and owner not in brought
    }
    assert missing == set()


def distributions_of(extra: str) -> set[str]:
    """What pip installs for an extra, without the library itself."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(each) for each in _PROJECT["dependencies"]]
    if extra:
        waiting.append(Requirement(f"ephemera-data[{extra}]"))
    while waiting:
        requirement = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        for name in ("", *requirement.extras):
            if (canonical(requirement.name), name) not in found:
                found.add((canonical(requirement.name), name))
                waiting += requirements_of(requirement.name, name)
    return {name for name, _ in found}


def requirements_of(name: str, extra: str) -> list[Requirement]:
    """The requirements of a distribution, or those that one of its extras adds."""
    if canonical(name) == "ephemera-data":
        return [Requirement(each) for each in _PROJECT["optional-dependencies"].get(extra, ())]
    try:
        required = [Requirement(each) for each in distribution(name).requires or ()]
    except PackageNotFoundError:  # for another platform
        return []
    for each in required:
        if each.marker is not None and each.marker.evaluate({"extra": extra}):
            each.marker = None
    return required


def imports_of(modules: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each module of others that is imported when these are, and by which of ours."""
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in seen or not module.startswith("ephemera"):
            continue
        seen.add(module)
        waiting.append(module.rpartition(".")[0])
        for name in imported_by(module):
            if name.split(".")[0] == "ephemera":
                waiting.append(name)
            else:
                yield module, name


def imported_by(module: str) -> set[str]:
    """The modules that a module imports by statements at its top level, without a condition."""
    path = _SOURCE / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.is_file():  # a name of a package, not a module
        return set()
    found: set[str] = set()
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            found |= {each.name for each in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module is not None:
            found.add(statement.module)
            if statement.module.startswith("ephemera"):
                found |= {f"{statement.module}.{each.name}" for each in statement.names}
    return found


def owner_of(name: str) -> str | None:
    """The distribution that a module belongs to; None for the standard library."""
    if name.split(".")[0] in sys.stdlib_module_names:
        return None
    spec = find_spec(name)
    assert spec is not None, name
    return owners().get(str(spec.origin), name)


@cache
def owners() -> dict[str, str]:
    """The distribution of each installed file of Python."""
    return {
        str(each.locate_file(file)): canonical(each.metadata["Name"])
        for each in distributions()
        for file in each.files or ()
        if file.suffix in {".py", ".so"}
    }


def canonical(name: str) -> str:
    """A name as the index normalizes it."""
    return re.sub(r"[-_.]+", "-", name).lower()
