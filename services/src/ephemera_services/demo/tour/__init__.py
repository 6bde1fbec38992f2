"""The tour: step by step through the systems, each with what was done and what came of it.

A step holds, does not hold (then the tour goes on, and fails), or is skipped with the reason: what would have
to be stopped is not the demonstration's own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
from rich.markup import escape

from ephemera.errors import EphemeraError
from ephemera_services.demo.tour import console, feed, identity, league, scripture, slides
from ephemera_services.demo.tour.guide import DidNotHold, Guide, Skipped, Step
from ephemera_services.demo.visitors import Unexpected

if TYPE_CHECKING:
    from ephemera_services.demo.run import Stage

STEPS: tuple[Step, ...] = (
    *identity.STEPS,
    *scripture.STEPS,
    *slides.STEPS,
    *league.STEPS,
    *feed.STEPS,
    *console.STEPS,
)


async def toured(stage: Stage) -> bool:
    """Take all steps; whether all of them held."""
    failed: list[str] = []
    skipped = 0
    for number, step in enumerate(STEPS, 1):
        stage.screen.line(f"\n[bold]{number}/{len(STEPS)} {step.system}: {escape(step.title)}[/]")
        outcome = await _taken(stage, step)
        failed += [f"{number} ({step.title})"] if outcome == "failed" else []
        skipped += outcome == "skipped"
    stage.screen.line()
    if failed:
        stage.screen.line(f"[bold red]●[/] Did not hold: step {escape('; step '.join(failed))}.")
    else:
        but = f", {skipped} skipped" if skipped else ""
        stage.screen.line(f"[bold green]●[/] All {len(STEPS) - skipped} steps held{but}.")
    return not failed


async def _taken(stage: Stage, step: Step) -> str:
    guide = Guide(stage)
    began = time.perf_counter()
    try:
        with stage.screen.working(step.title):
            await step.take(guide)
    except Skipped as reason:
        stage.screen.line(f"  [yellow]- skipped: {escape(str(reason))}[/]")
        return "skipped"
    except (DidNotHold, Unexpected, EphemeraError, httpx.HTTPError, TimeoutError) as problem:
        stage.screen.line(f"  [bold red]✗ {escape(str(problem) or type(problem).__name__)}[/]")
        return "failed"
    stage.screen.line(f"  [bold green]✓ held[/] [dim]{time.perf_counter() - began:.1f} s[/]")
    return "held"
