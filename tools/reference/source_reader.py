"""Source as the reference reads it: modules without importing them, and defaults as their source says them.

A default is shown as it is written there: numbers, texts, a new one of a class, the value of a constant. So
the page is the same on every machine, and never shows a memory address.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

_LONGEST_DEFAULT = 60  # characters


@functools.cache
def tree(module: str) -> ast.Module:
    """A module as its source says it; the module itself is not imported."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def statements(parsed: ast.Module) -> list[ast.stmt]:
    """Return a module's statements, including imports of an extra under `try` or `if TYPE_CHECKING`."""
    nested = ast.Try | ast.If
    return [each for node in parsed.body for each in (node.body if isinstance(node, nested) else [node])]


def default_shown(module: str, default: ast.expr | None) -> str:
    """A default as one reads it: `=None`, `=Cookie()`; `=...` for what is too long."""
    if default is None:
        return ""
    text = _read(module, default)
    return f"={text if text is not None and len(text) <= _LONGEST_DEFAULT else '...'}"


def _read(module: str, value: ast.expr) -> str | None:
    """A value as its source says it, names of constants by what they hold; None if it cannot be read."""
    match value:
        case ast.Constant():
            return ast.unparse(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return ast.unparse(value)
        case ast.BinOp(left=ast.Constant(), right=ast.Constant()):
            return ast.unparse(value)
        case ast.Tuple(elts=parts):
            read = [_read(module, each) for each in parts]
            comma = "," if len(read) == 1 else ""
            return None if None in read else f"({', '.join(map(str, read))}{comma})"
        case ast.Call(func=ast.Name(id=made), args=given, keywords=named) if (
            made == "timedelta" or made[0].isupper()
        ):
            # A new one of a class, such as Cookie(); what a function returns cannot be seen here.
            words = [("", each) for each in given] + [(f"{each.arg}=", each.value) for each in named]
            arguments = [(name, _read(module, each)) for name, each in words]
            if any(text is None for _, text in arguments):
                return None
            return f"{made}({', '.join(f'{name}{text}' for name, text in arguments)})"
        case ast.Name(id=name):
            held = _held(module, name)
            return None if held is None else _read(*held)
    return None


def _held(module: str, name: str) -> tuple[str, ast.expr] | None:
    """The value of a module's constant, with the module that assigns it; None outside our packages."""
    for node in statements(tree(module)):
        match node:
            case ast.Assign(value=value) if target(node) == name:
                return module, value
            case ast.AnnAssign(value=ast.expr() as value) if target(node) == name:
                return module, value
            case ast.ImportFrom(module=str(origin), level=0) if origin.partition(".")[0] == "ephemera":
                for each in node.names:
                    if (each.asname or each.name) == name:
                        return _held(origin, each.name)
    return None


def target(node: ast.Assign | ast.AnnAssign) -> str:
    """The name that is assigned to."""
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
