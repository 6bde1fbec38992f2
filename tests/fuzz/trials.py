"""Trials: a strategy that generates cases, and a check that must hold for every one of them.

A case is plain data (strings, bytes, numbers, tuples, lists, dicts), so that a failing one can be written to
a file and replayed from there. What a check needs, such as a server, is opened by its area.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from hypothesis.strategies import SearchStrategy

Check: TypeAlias = Callable[[Any], Awaitable[None] | None]
Draw: TypeAlias = Callable[["Random"], Any]
PATIENCE = 30.0
"""Timeout of a check in seconds; most need less than a hundredth of one."""


@dataclass(frozen=True)
class Trial:
    """Something that must hold for all cases: `guarantee` says it in a sentence."""

    name: str
    guarantee: str
    cases: SearchStrategy[Any] | Draw
    """A Hypothesis strategy, or a function that draws a case that cannot be shrunk."""
    check: Check
    batch: int = 100
    """Cases in a row before the next trial of the area."""
    patience: float = PATIENCE
    needs_services: bool = False
    """Whether it starts services, which takes seconds."""


@dataclass(frozen=True)
class Area:
    """Trials that share what they need; `opened` is an async context manager that starts it in a folder."""

    name: str
    opened: Callable[[Path], AbstractAsyncContextManager[list[Trial]]]
