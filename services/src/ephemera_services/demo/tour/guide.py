"""What the steps of the tour are made of: telling what happens, holding it to what should, waiting for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rich.markup import escape

from ephemera_services.demo.visitors import Visitor

if TYPE_CHECKING:
    from ephemera_services.demo.run import Stage

T = TypeVar("T")

PATIENCE = 45.0  # seconds for what should be soon; machines may be busy


class DidNotHold(Exception):
    """Something was not as it should be."""


class Skipped(Exception):
    """A step that cannot be taken here, and why."""


class Guide:
    """One step under way."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.scene = stage.scene

    def visitor(self, system: str, address: str | None = None) -> Visitor:
        """Somebody who asks a service."""
        return Visitor(self.scene, system, address)

    def tell(self, what: str, result: object = "") -> None:
        """Print what was done, and what came of it."""
        arrow = f" → [green]{escape(str(result))}[/]" if result != "" else ""
        self.stage.screen.line(f"  {escape(what)}{arrow}")

    def hold(self, holds: bool, otherwise: str) -> None:
        """Go on if it holds; `DidNotHold` otherwise."""
        if not holds:
            raise DidNotHold(otherwise)

    async def until(self, asked: Callable[[], Awaitable[T | None]], what: str) -> T:
        """What a question gives once it gives something; how long it takes is shown meanwhile."""
        began = time.monotonic()
        while True:
            found = await asked()
            if found:
                return found
            waited = time.monotonic() - began
            self.hold(waited < PATIENCE, f"not within {PATIENCE:.0f} s: {what}")
            self.stage.screen.working_on(f"waiting until {what} ({waited:.0f} s)")
            await asyncio.sleep(0.1)


class Step(NamedTuple):
    """One step: whose, what it shows, and how."""

    system: str
    title: str
    take: Callable[[Guide], Awaitable[None]]
