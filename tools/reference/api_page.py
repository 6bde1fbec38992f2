"""The reference of public names, read from the source: each with its arguments and its docstring's beginning.

A module is public when no part of its path has an underscore and it has an `__all__`. Nothing is imported, so
no extra has to be installed; a name that is re-exported is followed to where it is defined.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from tools.reference.source_reader import default_shown, statements, target
from tools.reference.source_reader import tree as _tree

SOURCE = Path(__file__).parents[2] / "src"
_SECTIONS = {
    "The core": r"ephemera(\.(?!patterns|web|adapters|operations|cli|console)\w+)?",
    "Patterns": r"ephemera\.patterns\.\w+",
    "Web": r"ephemera\.web(\.\w+)?",
    "Adapters": r"ephemera\.adapters\.\w+",
    "Operations": r"ephemera\.operations\.\w+",
    "Command line and console": r"ephemera\.(cli|console)",
}


def public_modules() -> dict[str, tuple[str, ...]]:
    """Every public module by section: those without an underscore in their path that have an `__all__`."""
    found = []
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if "._" not in name and "\n__all__ =" in file.read_text(encoding="utf-8"):
            found.append(name)
    found.append("ephemera.errors")
    return {
        title: tuple(name for name in sorted(set(found)) if re.fullmatch(section, name))
        for title, section in _SECTIONS.items()
    }


_INTRODUCTION = """\
# Public names

<!-- Made by `make docs`; do not edit. -->

Every public name, by module, with what its docstring says first. A default of `...` is too long to show.
What is not listed here is not public and
may change without a word. [The map](../README.md) leads to pages that explain; `help(name)` shows a docstring
whole.
"""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_MAKERS = ("__init__", "__new__")


@dataclass(frozen=True, slots=True)
class Name:
    """One public name of a module."""

    module: str
    name: str
    call: str
    """The name as it is used: with the arguments of a function, or of a class."""
    says: str
    """The first sentence of its docstring; empty when it has none."""
    members: tuple[Name, ...] = ()


def reference() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for title, modules in public_modules().items():
        parts.append(f"## {title}\n")
        parts += [_section(module) for module in modules]
    return "\n".join(parts)


def public_names(module: str) -> list[Name]:
    """The public names of a module."""
    parsed = _tree(module)
    listed = _listed(parsed)
    if listed is None:
        defined = [node.name for node in parsed.body if isinstance(node, ast.ClassDef | _Function)]
        listed = [name for name in defined if not name.startswith(("_", "pytest_"))]
    return [_described(module, name) for name in sorted(listed, key=str.casefold)]


def _section(module: str) -> str:
    lines = [f"### {module}\n", f"{_first(ast.get_docstring(_tree(module)))}\n"]
    for name in public_names(module):
        lines.append(f"- `{name.call}`: {name.says}")
        lines += [f"  - `{member.call}`: {member.says}" for member in name.members]
    return "\n".join(lines) + "\n"


def _listed(parsed: ast.Module) -> list[str] | None:
    for node in parsed.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def _described(module: str, name: str) -> Name:
    """A name where it is defined, in this module or in the one that it is imported from."""
    body = statements(_tree(module))
    for node, after in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.ClassDef() if node.name == name:
                says = _first(ast.get_docstring(node))
                return Name(module, name, _called(module, node), says, _members(module, node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return Name(module, name, _called(module, node), _first(ast.get_docstring(node)))
            case ast.ImportFrom() if name in {each.name for each in node.names}:
                return _described(str(node.module), name)
            case ast.Assign() | ast.AnnAssign() if target(node) == name:
                return Name(module, name, name, _first(_text(after)))
    raise LookupError(f"{module} has no {name}")


def _members(module: str, node: ast.ClassDef) -> tuple[Name, ...]:
    """The public methods and properties that a class defines itself."""
    return tuple(
        Name(module, each.name, "." + _called(module, each), _first(ast.get_docstring(each)))
        for each in node.body
        if isinstance(each, _Function) and not each.name.startswith("_") and not _is_overload(each)
    )


def _called(module: str, node: ast.ClassDef | _Function) -> str:
    if isinstance(node, ast.ClassDef):
        makers = [each for each in node.body if isinstance(each, _Function) and each.name in _MAKERS]
        return f"{node.name}{_arguments(module, makers[0])}" if makers else node.name
    decorators = {ast.unparse(each) for each in node.decorator_list}
    is_value = bool(decorators & {"property", "functools.cached_property", "cached_property"})
    is_fixture = any("fixture" in each for each in decorators)
    return node.name if is_value or is_fixture else f"{node.name}{_arguments(module, node)}"


def _is_overload(node: _Function) -> bool:
    return any(ast.unparse(each) == "overload" for each in node.decorator_list)


def _arguments(module: str, node: _Function) -> str:
    """The arguments without types, with their defaults, and without self."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    needed = [None] * (len(positional) - len(given.defaults))
    shown = [
        each.arg + default_shown(module, default)
        for each, default in zip(positional, [*needed, *given.defaults], strict=True)
        if each.arg not in ("self", "cls")
    ]
    if given.vararg:
        shown.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        shown.append("*")
    shown += [
        each.arg + default_shown(module, default)
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        shown.append(f"**{given.kwarg.arg}")
    return f"({', '.join(shown)})"


def _text(node: ast.stmt | None) -> str | None:
    """The text that stands below an assignment, and describes it."""
    match node:
        case ast.Expr(ast.Constant(str(text))):
            return text
    return None


def _first(docstring: str | None) -> str:
    """What a docstring says first, on one line."""
    return " ".join((docstring or "").strip().split("\n\n")[0].split())
