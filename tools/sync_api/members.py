"""The members of one class, as the stub declares them: attributes and methods."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from ephemera.sync._sync_classes import is_async_class, is_public, method_of, synchronous
from tools.sync_api.annotations import Synchronous, assigned, look_up

if TYPE_CHECKING:
    from tools.sync_api.stub import Stub


class Members:
    """The members of one class, as the stub declares them."""

    def __init__(self, stub: Stub, module: ModuleType, kind: type) -> None:
        self._stub = stub
        self._module = module
        self._kind = kind
        tree = cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0])
        self._body = tree.body

    def written(self) -> Iterator[str]:
        """All of them, attributes first."""
        methods = [node for node in self._body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        yield from self._attributes(methods)
        overloaded = {node.name for node in methods if "overload" in _decorators(node)}
        for node in methods:
            if node.name in overloaded and "overload" not in _decorators(node):
                continue
            yield from self._method(node)

    def _attributes(self, methods: list[Any]) -> Iterator[str]:
        init = next((node for node in methods if node.name == "__init__"), None)
        if init is None:
            return
        given = {each.arg: each.annotation for each in (*init.args.args, *init.args.kwonlyargs)}
        for node in ast.walk(init):
            target = assigned(node)
            if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
                continue
            if inspect.isfunction(vars(self._kind).get(f"_{target.attr}")):
                continue
            annotation = _type_of(node, given)
            if annotation is not None and not self._is_internal(annotation):
                yield f"{target.attr}: {self._annotation(annotation)}"

    def _is_internal(self, annotation: ast.expr) -> bool:
        """Whether an attribute is for the loop: a future, or an object with methods to await."""
        names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
        values = [look_up(self._module, name)[0] for name in names if not hasattr(builtins, name)]
        return "asyncio" in names or any(isinstance(each, type) and is_async_class(each) for each in values)

    def _method(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        if node.name == "__aenter__":
            yield f"def __enter__(self) -> {self._annotation(node.returns)}: ..."
            yield "def __exit__(self, *error: object) -> None: ..."
        elif node.name == "__anext__":
            self._stub.add_import("typing", "Self")
            yield "def __iter__(self) -> Self: ..."
            yield f"def __next__(self) -> {self._annotation(node.returns)}: ..."
        else:
            name = node.name
            slot = inspect.ismemberdescriptor(vars(self._kind).get(name[1:]))
            name = name[1:] if slot else name
            if name in vars(self._kind) and is_public(name, method_of(self._kind, name)):
                yield self._definition(name, node)

    def _definition(self, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        decorators = _decorators(node)
        returned = self._annotation(node.returns)
        if "asynccontextmanager" in decorators:
            self._stub.add_import("contextlib", "AbstractContextManager")
            returned = f"AbstractContextManager[{returned.partition('[')[2]}"
        kept = [each for each in decorators if each in ("overload", "property", "staticmethod")]
        if "overload" in kept:
            self._stub.add_import("typing", "overload")
        head = "".join(f"@{each}\n" for each in kept)
        doc = inspect.cleandoc(ast.get_docstring(node) or "")
        body = f"\n{textwrap.indent(doc_of(doc), '    ')}" if doc else " ..."
        return f"{head}def {name}({self._arguments(node.args)}) -> {returned}:{body}"

    def _arguments(self, arguments: ast.arguments) -> str:
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            each.annotation = each.annotation and self._parsed(each.annotation)
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None and rest.annotation is not None:
                rest.annotation = self._parsed(rest.annotation)
        arguments.defaults = [_short(each) for each in arguments.defaults]
        arguments.kw_defaults = [each and _short(each) for each in arguments.kw_defaults]
        return ast.unparse(arguments)

    def _parsed(self, annotation: ast.expr) -> ast.expr:
        return ast.parse(self._annotation(annotation), mode="eval").body

    def _annotation(self, annotation: ast.expr | None) -> str:
        if annotation is None:
            return "None"
        return ast.unparse(Synchronous(self._stub, self._module).visit(annotation))


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [ast.unparse(each) for each in node.decorator_list]


def _type_of(node: ast.AST, given: dict[str, ast.expr | None]) -> ast.expr | None:
    """The type of an attribute, as annotated or by what is assigned: a parameter, a literal, a new object."""
    if isinstance(node, ast.AnnAssign):
        return node.annotation
    value = cast("ast.Assign", node).value
    if isinstance(value, ast.Name):
        return given.get(value.id)
    if isinstance(value, ast.Constant) and isinstance(value.value, (bool, int, float, str)):
        return ast.Name(type(value.value).__name__)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[0].isupper():
        return value.func
    return None


def _short(default: ast.expr) -> ast.expr:
    plain = isinstance(default, (ast.Constant, ast.UnaryOp)) or ast.unparse(default) == "()"
    return default if plain else ast.Constant(...)


def doc_of(doc: str | None) -> str:
    """A docstring in the words of synchronous code, with its quotes."""
    text = inspect.cleandoc(synchronous(doc or "") or "")
    quote = 'r"""' if "\\" in text else '"""'
    return f'{quote}{text}\n"""' if "\n" in text else f'{quote}{text}"""'
