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


MADE_BY_US = frozenset(("Consumer", "Job", "LocalEntry", "Missed", "ProgressEntry", "Rule", "Template"))
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
    made: Callable[..., Any] = value
    if inspect.isclass(value):
        if (
            value.__name__ in MADE_BY_US
            or _has_documented_fields(value)
            or not inspect.isfunction(vars(value).get("__init__"))
        ):
            return []
        made = vars(value)["__init__"]
        docstring += made.__doc__ or ""
    return [
        f"{name}({each.name}=)"
        for each in inspect.signature(made).parameters.values()
        if each.kind is each.KEYWORD_ONLY
        and not re.search(rf"\b{re.escape(each.name)}\b", docstring)
        and each.name not in OF_EVERY_DECLARATION
    ]


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


def test_what_is_missing_is_noticed() -> None:
    """A planted function without a text for its parameter is found."""

    def planted(*, depth: int, width: int) -> None:
        """Dig, as deep as `depth` says."""

    assert unexplained("planted", planted, planted.__doc__ or "") == ["planted(width=)"]
