"""What a user sees of a declaration and of `store[X]`: the reviewed list in `public_surface.txt`.

A new public method or attribute fails here until it is added to the list, so that making something public is
a decision. What only the library needs begins with an underscore.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from ephemera import patterns

_LIST = Path(__file__).with_name("public_surface.txt")
_OTHERS = {"Claim", "Decision"}
"""Objects that users hold besides declarations and what they are bound to."""


def test_the_public_surface_is_the_reviewed_one() -> None:
    """Every public attribute of a declaration or a bound object is in the list, and nothing else is."""
    listed = dict(line.split(": ") for line in _LIST.read_text().splitlines() if not line.startswith("#"))
    surface = {each.__name__: " ".join(sorted(public_attributes(each))) for each in _classes()}
    assert surface == listed


def test_a_new_attribute_is_noticed() -> None:
    """Methods, properties, class attributes and what a method assigns to `self` are seen; private is not."""

    class Base:
        inherited = 1

    class Planted(Base):
        def __init__(self) -> None:
            self.kept, self._hidden = 1, 2
            self.typed: int = 3

        def method(self) -> None: ...

        def _private(self) -> None: ...

        @property
        def shown(self) -> int:
            return 1

    assert public_attributes(Planted) == {"inherited", "kept", "method", "shown", "typed"}


def public_attributes(owner: type) -> set[str]:
    """The public names of a class and of its instances."""
    names = set(dir(owner))
    for base in owner.__mro__:
        if base.__module__.startswith(("ephemera.", __name__)):
            names |= set(_assigned(base))
    return {name for name in names if not name.startswith("_")}


def _assigned(owner: type) -> Iterator[str]:
    """What the methods of a class assign to `self`."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(owner)))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def _classes() -> Iterator[type]:
    for each in pkgutil.iter_modules(patterns.__path__):
        if each.name.startswith("_"):
            continue
        module = import_module(f"ephemera.patterns.{each.name}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and (
                name.startswith("Bound") or name in _OTHERS or hasattr(value, "bind")
            ):
                yield value
