"""Every trap has a test, which its name tells: `test_s12_...` is of trap S12."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_TRAPS = [
    "I1", "I2", "I3", "I4", "I5", "I6", "I7",
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S14", "S15", "S16",
    "S17", "S18", "S19", "S20", "S21",
    "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8",
    "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8",
    "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10",
]  # fmt: skip
"""What the descriptions of identity, slides, scripture, feed and league get wrong, by its number there."""


def _tests() -> list[str]:
    """The names of all test functions of this package, as pytest collects them."""
    modules = (ast.parse(path.read_text("utf-8")) for path in Path(__file__).parent.glob("test_*.py"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name
        for module in modules
        for node in module.body
        if isinstance(node, functions) and node.name.startswith("test_")
    ]


def test_every_trap_has_a_test() -> None:
    """All 54 are tested, and no test is named by a trap that there is not."""
    numbered = (re.match(r"test_([a-z]\d+)_", name) for name in _tests())
    tested = {found[1].upper() for found in numbered if found}
    assert len(_TRAPS) == 54
    assert tested == set(_TRAPS)
