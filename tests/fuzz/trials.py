"""What is tried: a trial is a strategy for cases, and a check that must hold for every one of them.

A case is plain data (texts, bytes, numbers, tuples, lists, dicts), so that one that fails can be written to a
file as it is, and tried again from there. What a check needs, such as a server, is opened by its area.
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
"""Seconds that a check may take; most need less than a hundredth of one."""


@dataclass(frozen=True)
class Trial:
    """Something that must hold for all cases: `promise` says it in a sentence."""

    name: str
    promise: str
    cases: SearchStrategy[Any] | Draw
    """What Hypothesis draws and shrinks, or a function that draws a case that cannot be shrunk."""
    check: Check
    batch: int = 100
    """Cases in a row before another trial of the area has its turn."""
    patience: float = PATIENCE
    asks_services: bool = False
    """Whether it starts services, which takes seconds."""


@dataclass(frozen=True)
class Area:
    """Trials that share what they need; `opened` starts it in a folder, and ends it."""

    name: str
    opened: Callable[[Path], AbstractAsyncContextManager[list[Trial]]]
