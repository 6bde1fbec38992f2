"""Helpers for tour steps: report what happens, check it, and wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from rich.markup import escape

from ephemera_services.demo.clients import DemoClient, TrafficContext
from ephemera_services.demo.process_plan import ProcessPlan
from ephemera_services.demo.processes import Processes
from ephemera_services.demo.screen import Screen
from ephemera_services.demo.servers import Servers

T = TypeVar("T")

TIMEOUT = 45.0  # seconds for what usually takes a few; machines may be busy


class CheckFailed(Exception):
    """A result is not the expected one."""


class StepSkipped(Exception):
    """A step that cannot run here, and why."""


@dataclass(frozen=True)
class RunningDemo:
    """Everything that runs."""

    plan: ProcessPlan
    servers: Servers
    processes: Processes
    traffic: TrafficContext
    screen: Screen


class StepContext:
    """What a step acts, reports and checks with."""

    def __init__(self, demo: RunningDemo) -> None:
        self.demo = demo
        self.traffic = demo.traffic

    def client(self, service: str, address: str | None = None) -> DemoClient:
        """A client of a service."""
        return DemoClient(self.traffic, service, address)

    def report(self, action: str, result: object = "") -> None:
        """Print what was done, and the result."""
        arrow = f" → [green]{escape(str(result))}[/]" if result != "" else ""
        self.demo.screen.line(f"  {escape(action)}{arrow}")

    def check(self, condition: bool, message: str) -> None:
        """Raise `CheckFailed` unless the condition is true."""
        if not condition:
            raise CheckFailed(message)

    async def wait_until(self, poll: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Call `poll` until it returns something true, and return that; show the wait in the meantime."""
        started = time.monotonic()
        while True:
            result = await poll()
            if result:
                return result
            waited = time.monotonic() - started
            self.check(waited < TIMEOUT, f"not within {TIMEOUT:.0f} s: {what}")
            self.demo.screen.update_status(f"waiting until {what} ({waited:.0f} s)")
            await asyncio.sleep(0.1)


class Step(NamedTuple):
    """One step: its service, what it shows, and how."""

    service: str
    title: str
    run: Callable[[StepContext], Awaitable[None]]
