"""The single changes that can be made to a Python or a Lua file."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one file, as a replacement of a part of its text."""

    path: str
    line: int
    where: str
    """The function, as a dotted name; of a Lua file, its name."""
    start: int
    end: int
    before: str
    after: str
    number: int = 1
    """Which one it is of several alike in the same function."""

    @property
    def name(self) -> str:
        """What identifies it as long as the function is as it is."""
        which = f" ({self.number})" if self.number > 1 else ""
        return f"{self.path}::{self.where}: `{_flat(self.before)}` -> `{_flat(self.after)}`{which}"

    def apply(self, text: str) -> str:
        """Return the file's text with the change."""
        assert text[self.start : self.end] == self.before
        return text[: self.start] + self.after + text[self.end :]


def _other(number: int) -> int:
    """Return another number: the next one, and far more for what may be a limit."""
    return number + 1 if number < 3 else number * 10


def _flat(text: str) -> str:
    return " ".join(text.split())[:90]


@cache
def mutations(path: str, text: str) -> list[Mutation]:
    """Return all changes of a file, in the order of its text."""
    found = _lua(path, text) if path.endswith(".lua") else _Python(path, text).found()
    seen: Counter[str] = Counter()
    numbered = []
    for each in sorted(found, key=lambda each: (each.start, each.end, each.after)):
        seen[each.name] += 1
        numbered.append(replace(each, number=seen[each.name]))
    return numbered


_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}


class _Python(ast.NodeVisitor):
    """Collects the changes of a Python file; skips what has no behaviour: annotations, reprs, logs."""

    _SILENT: ClassVar = {"__repr__", "__str__"}
    _LOGS: ClassVar = {"log", "logger", "warnings", "_log"}

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line.encode()))
        self._data = text.encode()
        self._names: list[str] = []
        self._found: list[Mutation] = []

    def found(self) -> list[Mutation]:
        self.visit(ast.parse(self._text))
        return self._found

    def _offset(self, line: int, column: int) -> int:
        at = self._lines[line - 1] + column
        return at if len(self._data) == len(self._text) else len(self._data[:at].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno, node.end_col_offset),
        )

    def _add(self, start: int, end: int, after: str) -> None:
        line = self._text.count("\n", 0, start) + 1
        before = self._text[start:end]
        where = ".".join(self._names) or "module"
        self._found.append(Mutation(self._path, line, where, start, end, before, after))

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace the operator between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        match = re.search(rf"(?<![\w<>=!*/]){re.escape(old)}(?![<>=*/])", self._text[start:end])
        if match:
            self._add(start + match.start(), start + match.end(), new)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in self._SILENT:
            return
        self._names.append(node.name)
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node.test, ast.Name | ast.Attribute | ast.Call | ast.Await):
            start, end = self._span(node.test)
            self._add(start, end, f"not {self._text[start:end]}")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between(left, right, *_COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        pair = _ARITHMETIC.get(type(node.op))
        is_text = any(
            isinstance(each, ast.JoinedStr)
            or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
            for each in (node.left, node.right)
        )
        if pair and not is_text:
            self._between(node.left, node.right, *pair)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node)
            self._add(start, end, self._text[start + len("not") : end].lstrip())
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = self._span(node)
        if isinstance(node.value, bool):
            self._add(start, end, str(not node.value))
        elif isinstance(node.value, int):
            self._add(start, end, str(_other(node.value)))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            start, end = self._span(node.value)
            self._add(start, end, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Constant):
            return  # a docstring
        if isinstance(call, ast.Call) and not self._is_log(call):
            start, end = self._span(node)
            self._add(start, end, "pass")
            self.generic_visit(node)

    def _is_log(self, call: ast.Call) -> bool:
        target = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        return isinstance(target, ast.Name) and target.id.lower() in self._LOGS

    def visit_Raise(self, node: ast.Raise) -> None:
        start, end = self._span(node)
        self._add(start, end, "pass")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        start, end = self._span(node)
        self._add(start, end, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(*self._span(node), "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(*self._span(node), "break")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts with values in them are messages and keys: their parts are not changed."""


_LUA = (
    (r"<=", "<"), (r">=", ">"), (r"==", "~="), (r"~=", "=="), (r"(?<![<>~=])<(?!=)", "<="),
    (r"(?<![<>~=-])>(?!=)", ">="), (r"\band\b", "or"), (r"\bor\b", "and"), (r"\bnot ", ""),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "),
    (r" / ", " * "),
    (r"\bmath\.max\b", "math.min"), (r"\bmath\.min\b", "math.max"),
    (r"(?<![\w.'\[])\d+(?![\w.'\]])", "other"), (r"^ *redis\.call\([^\n]*\)$", "do end"),
    (r"(?<=then )redis\.call\([^\n]*\)(?= end)", "do end"), (r"^ *return .+$", "return nil"),
)  # fmt: skip


def _lua(path: str, text: str) -> Iterator[Mutation]:
    hidden = re.sub(r"--[^\n]*|'[^'\n]*'", lambda each: _blank(each.group()), text)
    where = path.rpartition("/")[2]
    for pattern, after in _LUA:
        for match in re.finditer(pattern, hidden, re.MULTILINE):
            start, end = match.span()
            start += (
                len(match.group()) - len(match.group().lstrip()) if after in ("do end", "return nil") else 0
            )
            before = text[start:end]
            new = str(_other(int(before))) if after == "other" else after
            if before != new and not (after == "return nil" and before in ("return nil", "return false")):
                line = text.count("\n", 0, start) + 1
                yield Mutation(path, line, where, start, end, before, new)


def _blank(text: str) -> str:
    """Hide a comment or a string from the patterns, and keep its length."""
    return text if text.startswith("'") and len(text) < 3 else text[0] + "_" * (len(text) - 2) + text[-1]
