"""The generated file: its imports, type variables, classes and overloads."""

from __future__ import annotations

import builtins
import importlib
import pkgutil
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import ephemera.patterns
from ephemera import keyspace
from ephemera.sync._sync_classes import is_async_class
from ephemera.wire import Subscription
from tools.sync_api.annotations import home_of, look_up
from tools.sync_api.members import Members, doc_of

STUB = Path(__file__).parent.parent.parent / "src/ephemera/sync/_bound.pyi"

_HEAD = '''\
"""The types of `store[X]` in synchronous code. Made by `python -m tools.sync_api`; do not edit."""

'''
_ITEMS = '''
T_co = TypeVar("T_co", covariant=True)

class _BindsItself(Protocol[T_co]):
    """A declaration of an adapter, which makes its own object for a synchronous store."""

    def bind_sync(self, store: BlockingStore) -> T_co: ...

class BoundItems:
    """What `store[X]` is, by what X declares."""

    def __init__(self, store: BlockingStore) -> None: ...
'''
_BASES = (object, typing.Generic, typing.Protocol)


def accessors() -> Iterator[type]:
    """The accessors of all kinds of keyspaces."""
    for name in keyspace.__all__:
        value = getattr(keyspace, name)
        if isinstance(value, type) and issubclass(value, (keyspace.Accessor, keyspace.ChannelAccessor)):
            yield value


def runtimes() -> Iterator[type]:
    """What the `bind` of each pattern's declarations returns."""
    for found in pkgutil.iter_modules(ephemera.patterns.__path__):
        package = importlib.import_module(f"ephemera.patterns.{found.name}")
        for name in getattr(package, "__all__", ()):
            declaration = getattr(package, name)
            if isinstance(declaration, type) and hasattr(declaration, "bind"):
                module = sys.modules[declaration.bind.__module__]
                returned = declaration.bind.__annotations__["return"].partition("[")[0]
                yield getattr(module, returned)


class Stub:
    """The file in the making: its imports, type variables and classes."""

    def __init__(self) -> None:
        self._imports: dict[str, set[str]] = {}
        self._variables: dict[tuple[str, str], str] = {}
        self._values: dict[str, list[object]] = {}
        self._classes: dict[str, str] = {}
        self._items: list[str] = []

    def add_item(self, kind: type) -> None:
        """Declare a class that `store[X]` may be."""
        if kind is keyspace.Accessor:
            return
        self.name_of(kind)
        parameters = self._parameters(kind)
        arguments = f"[{', '.join(parameters)}]" if parameters else ""
        home = home_of(kind)
        self._imports.setdefault(home, set()).add(f"{kind.__name__} as Async{kind.__name__}")
        argument, result = f"Declaration[Async{kind.__name__}{arguments}]", f"{kind.__name__}{arguments}"
        self._add_overload(argument, result)

    def _add_overload(self, argument: str, result: str) -> None:
        self.add_import("typing", "overload")
        self.add_import("ephemera.keyspace", "Declaration")
        self._items.append(
            f"    @overload\n    def __getitem__(self, declaration: {argument}) -> {result}: ...\n"
        )

    def name_of(self, kind: type) -> str:
        """The name of a class's synchronous form, which is declared if it is not yet."""
        if kind.__name__ not in self._classes:
            self._classes[kind.__name__] = ""  # it may refer to itself
            self._classes[kind.__name__] = self._class(kind)
        return kind.__name__

    def text(self) -> str:
        """The whole file, formatted."""
        self.add_import("ephemera.blocking", "BlockingStore")
        for name in ("Any", "Protocol", "TypeVar"):
            self.add_import("typing", name)
        self._add_overload("_BindsItself[T_co]", "T_co")
        bodies = "\n".join(self._classes.values()) + _ITEMS + "".join(self._items)
        bodies += "    @overload\n    def __getitem__(self, declaration: Declaration[Any]) -> Any: ...\n"
        imports = [
            f"from {module} import {', '.join(sorted(names))}" if names else f"import {module}"
            for module, names in sorted(self._imports.items())
        ]
        variables = [
            f"{name} = {declared.replace('$', name)}" for (_, declared), name in self._variables.items()
        ]
        return _formatted("\n".join([_HEAD, *imports, "", *variables, "", bodies]))

    def resolve(self, module: ModuleType, name: str) -> str:
        """What a name of an async module is called here, after it has been imported or declared."""
        if hasattr(builtins, name):
            return name
        value, home = look_up(module, name)
        if isinstance(value, (typing.TypeVar, typing.ParamSpec)):
            return self._variable(value)
        if isinstance(value, type) and is_async_class(value) and not _is_protocol(value):
            return self.name_of(value)
        return self.import_value(home, name, value)

    def import_value(self, home: str, name: str, value: object) -> str:
        """Import something, under another name if two have this one."""
        known = self._values.setdefault(name, [])
        if value not in known:
            known.append(value)
        number = known.index(value)
        alias = f"{name}{number + 1 if number else ''}"
        self.add_import(home, name if alias == name else f"{name} as {alias}")
        return alias

    def add_import(self, module: str, name: str) -> None:
        """Import a name of a module."""
        self._imports.setdefault(module, set()).add(name)

    def _variable(self, value: typing.TypeVar | typing.ParamSpec) -> str:
        kind = "TypeVar" if isinstance(value, typing.TypeVar) else "ParamSpec"
        bound, options = getattr(value, "__bound__", None), ""
        if bound is not None:
            options = f", bound={self._bound_name(bound)}"
        self.add_import("typing", kind)
        key = (value.__name__, f'{kind}("$"{options})')
        if key not in self._variables:
            taken = sum(name == value.__name__ for name, _ in self._variables)
            self._variables[key] = f"{value.__name__}{taken + 1 if taken else ''}"
        return self._variables[key]

    def _bound_name(self, bound: type) -> str:
        self.add_import(home_of(bound), bound.__name__)
        return bound.__name__

    def _parameters(self, kind: type) -> list[str]:
        return [self._variable(each) for each in getattr(kind, "__parameters__", ())]

    def _class(self, kind: type) -> str:
        parameters = self._parameters(kind)
        bases = [self._base(base) for base in _public_bases(kind)]
        if parameters:
            self.add_import("typing", "Generic")
            bases.append(f"Generic[{', '.join(parameters)}]")
        inherited = f"({', '.join(bases)})" if bases else ""
        lines = [f"class {kind.__name__}{inherited}:"]
        lines.append(textwrap.indent(doc_of(kind.__doc__), "    "))
        module = sys.modules[kind.__module__]
        lines += [textwrap.indent(each, "    ") for each in Members(self, module, kind).written()]
        return "\n".join(lines) + "\n"

    def _base(self, base: type) -> str:
        return self.name_of(base)


def _public_bases(kind: type) -> list[type]:
    """The nearest public base classes."""
    found: list[type] = []
    for base in kind.__bases__:
        if base in _BASES:
            continue
        found += [base] if not base.__name__.startswith("_") else _public_bases(base)
    return found


def _is_protocol(kind: type) -> bool:
    """Whether it says what users implement, and not what they get."""
    return typing.Protocol in kind.__bases__


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff"]
    options = ["--stdin-filename", str(STUB), "-"]
    sorted_ = subprocess.run(
        [*command, "check", "--fix-only", "--select", "I,F401", "--quiet", *options],
        input=text, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return subprocess.run(
        [*command, "format", "--quiet", *options], input=sorted_, capture_output=True, text=True, check=True
    ).stdout


def stub() -> str:
    """The text that the file should have."""
    made = Stub()
    for kind in dict.fromkeys((*accessors(), *runtimes())):
        made.add_item(kind)
    made.name_of(Subscription)
    return made.text()
