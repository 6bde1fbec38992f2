"""Help where people look: every public callable has a docstring, which explains its keyword parameters."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.docs.test_documented import OF_EVERY_DECLARATION
from tools.reference import api_page as api

MODULES = [module for modules in api.public_modules().values() for module in modules]
_EXPLAINED = re.compile(r"ephemera(\.keyspace|\.web.*|\.adapters\..*|\.sync|\.patterns\..*)?")
"""The modules that services call: all parameters by name are explained there."""


_LISTED = re.compile(r"ephemera(\.sync|\.sql|\.embedded|\.web.*|\.patterns\..*)?")
"""The modules of what most users declare and call: many parameters are explained there one by one."""
MADE_BY_US = frozenset(
    (
        *("Checkpoint", "Claim", "Consumer", "FanoutConnection", "HeldLock", "Job", "Limit", "Listener"),
        *("LocalEntry", "LockDeclaration", "Missed", "ProgressEntry", "Reservation", "Rule", "Run"),
        *("Schedule", "Template"),
    )
)
"""Classes that the library makes, and users only read."""


def callables(module: str) -> Iterator[tuple[str, Any, str]]:
    """Every public class, function, method and property of a module, each with its docstring."""
    loaded = importlib.import_module(module)
    for name in getattr(loaded, "__all__", ()):
        value = getattr(loaded, name)
        if inspect.isclass(value):
            yield f"{module}.{name}", value, vars(value).get("__doc__") or ""
            for each in value.__mro__:
                if each.__module__.startswith("ephemera"):
                    yield from _members(each)
        elif inspect.isfunction(value) and value.__module__.startswith("ephemera"):  # not what tests replace
            yield f"{module}.{name}", value, value.__doc__ or ""


def _members(owner: type) -> Iterator[tuple[str, Any, str]]:
    for name, member in vars(owner).items():
        plain = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        plain = getattr(plain, "func", plain)  # of a cached property
        if inspect.isfunction(plain) and not name.startswith("_"):
            yield f"{owner.__module__}.{owner.__qualname__}.{name}", plain, plain.__doc__ or ""


def unexplained(name: str, value: Any, docstring: str) -> list[str]:
    """The keyword parameters of a callable that its docstring does not name."""
    if inspect.isclass(value):
        docstring += value.__init__.__doc__ or ""
    return [
        f"{name}({each.name}=)"
        for each in parameters_of(value)
        if each.kind is each.KEYWORD_ONLY
        and not re.search(rf"\b{re.escape(each.name)}\b", docstring)
        and each.name not in OF_EVERY_DECLARATION
    ]


def unlisted(name: str, value: Any, docstring: str) -> list[str]:
    """The parameters of a callable with four or more that its `Args:` do not have."""
    parameters = [
        each for each in parameters_of(value) if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    listed = re.findall(
        r"^    (\w+): \S", inspect.cleandoc(docstring).partition("\nArgs:\n")[2], re.MULTILINE
    )
    return [f"{name}({each.name})" for each in parameters if len(parameters) > 3 and each.name not in listed]


def parameters_of(value: Any) -> list[inspect.Parameter]:
    """What a caller passes to a function, or to a class of which users make instances."""
    made: Callable[..., Any] = value
    if inspect.isclass(value):
        if (
            value.__name__ in MADE_BY_US
            or value.__name__.startswith("Bound")
            or _has_documented_fields(value)
            or not inspect.isfunction(vars(value).get("__init__"))
        ):
            return []
        made = vars(value)["__init__"]
    return [each for each in inspect.signature(made).parameters.values() if each.name not in ("self", "cls")]


def _has_documented_fields(value: type) -> bool:
    """Whether the parameters are fields with texts of their own, or those of an error."""
    return dataclasses.is_dataclass(value) or issubclass(value, msgspec.Struct | BaseException)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_callable_has_a_docstring(module: str) -> None:
    """An editor shows something for each name, method and property."""
    assert [name for name, _, docstring in callables(module) if not docstring.strip()] == []


@pytest.mark.parametrize("module", [module for module in MODULES if _EXPLAINED.fullmatch(module)])
def test_every_keyword_parameter_is_explained(module: str) -> None:
    """The docstring of a callable names each parameter that is passed by name."""
    found = [each for name, value, text in callables(module) for each in unexplained(name, value, text)]
    assert sorted(set(found)) == []


@pytest.mark.parametrize("module", [module for module in MODULES if _LISTED.fullmatch(module)])
def test_many_parameters_are_explained_one_by_one(module: str) -> None:
    """A callable with four parameters or more has `Args:`, with each of them; the site makes it a table."""
    found = [each for name, value, text in callables(module) for each in unlisted(name, value, text)]
    assert sorted(set(found)) == []


def test_what_is_missing_is_noticed() -> None:
    """A planted function without a text for its parameter is found."""

    def planted(*, depth: int, width: int, height: int = 1, hard: bool = False) -> None:
        """Dig."""

    text = "Dig to a `depth`, this `height`, `hard`.\n\nArgs:\n    depth: In metres.\n    hard: In rock.\n"
    assert unexplained("planted", planted, text) == ["planted(width=)"]
    assert unlisted("planted", planted, text) == ["planted(width)", "planted(height)"]
