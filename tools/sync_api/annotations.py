"""Annotations of async methods as those of their synchronous form, and where their names come from."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tools.sync_api.stub import Stub

_SYNCHRONOUS = {
    "AsyncIterator": "Iterator",
    "AsyncGenerator": "Iterator",
    "AbstractAsyncContextManager": "AbstractContextManager",
}


class _LiteralNames(ast.NodeTransformer):
    """Imports the enums whose members a `Literal` names; its strings stay."""

    def __init__(self, stub: Stub, module: ModuleType) -> None:
        self._stub = stub
        self._module = module

    def visit_Name(self, node: ast.Name) -> Any:
        return ast.Name(self._stub.resolve(self._module, node.id))


class Synchronous(ast.NodeTransformer):
    """Transforms an annotation of an async method to the one of its synchronous form."""

    def __init__(self, stub: Stub, module: ModuleType) -> None:
        self._stub = stub
        self._module = module

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """What is awaited in place of an awaitable, and the synchronous form of what is generic."""
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name == "Literal":
            self._stub.resolve(self._module, name)
            return ast.Subscript(node.value, _LiteralNames(self._stub, self._module).visit(node.slice))
        if name == "Awaitable":
            return self.visit(node.slice)
        if name == "Coroutine" and isinstance(node.slice, ast.Tuple):
            return self.visit(node.slice.elts[-1])
        if name in _SYNCHRONOUS:
            value = _SYNCHRONOUS[name]
            self._stub.add_import("contextlib" if "Context" in value else "collections.abc", value)
            return ast.Subscript(ast.Name(value), self.visit(node.slice))
        expanded = self._expanded(name)
        return self.generic_visit(node) if expanded is None else expanded

    def visit_Name(self, node: ast.Name) -> Any:
        """A name, imported, or an alias of an awaitable, expanded."""
        expanded = self._expanded(node.id)
        return ast.Name(self._stub.resolve(self._module, node.id)) if expanded is None else expanded

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """A name of a module, or the arguments of a `ParamSpec`."""
        if isinstance(node.value, ast.Name):
            base, _ = look_up(self._module, node.value.id)
            if isinstance(base, ModuleType):
                self._stub.add_import(base.__name__, node.attr)
                return ast.Name(node.attr)
            return ast.Attribute(ast.Name(self._stub.resolve(self._module, node.value.id)), node.attr)
        return node

    def visit_Constant(self, node: ast.Constant) -> Any:
        """An annotation in quotes."""
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)
        return node

    def _expanded(self, name: str) -> Any:
        """The type that an alias of an awaitable stands for; None for another name."""
        if not name or hasattr(builtins, name):
            return None
        value, home = look_up(self._module, name, defined=True)
        if isinstance(value, type) or "Awaitable" not in str(value) or "AsyncConnection" in str(value):
            return None
        module = sys.modules[home]
        for node in ast.parse(inspect.getsource(module)).body:
            target = assigned(node)
            if isinstance(target, ast.Name) and target.id == name:
                return Synchronous(self._stub, module).visit(cast("ast.Assign", node).value)
        return None


def look_up(module: ModuleType, name: str, *, defined: bool = False) -> tuple[Any, str]:
    """The value of a name in a module, and the module to import it from, or the one that defines it."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    source = importlib.import_module(node.module)
                    if defined and source.__name__.startswith("ephemera."):
                        return look_up(source, alias.name, defined=True)
                    return getattr(source, alias.name), public_home(node.module, alias.name)
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return importlib.import_module(alias.name), alias.name
    home = module.__name__ if defined else public_home(module.__name__, name)
    return getattr(module, name), home


def public_home(module: str, name: str) -> str:
    """The package that exports a name of one of its private modules, or else that module."""
    package, _, last = module.rpartition(".")
    if last.startswith("_") and hasattr(importlib.import_module(package), name):
        return package
    return module


def home_of(value: type) -> str:
    """The module to import a class from."""
    return public_home(value.__module__, value.__name__)


def assigned(node: ast.AST) -> ast.expr | None:
    """What a statement assigns to."""
    if isinstance(node, ast.AnnAssign):
        return node.target
    return node.targets[0] if isinstance(node, ast.Assign) else None
