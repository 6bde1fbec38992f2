"""The tour: step by step through the services, showing what was done and the result.

A step passes, fails (then the tour continues, and fails at the end), or is skipped with the reason: it would
have to stop a server that is not embedded.
"""

from __future__ import annotations

import time

import httpx
from rich.markup import escape

from ephemera.errors import EphemeraError
from ephemera_services.demo.clients import UnexpectedStatus
from ephemera_services.demo.tour import console, feed, identity, league, scripture, slides
from ephemera_services.demo.tour.steps import CheckFailed, RunningDemo, Step, StepContext, StepSkipped

__all__ = ["STEPS", "CheckFailed", "RunningDemo", "Step", "StepContext", "StepSkipped", "run_steps"]

STEPS: tuple[Step, ...] = (
    *identity.STEPS,
    *scripture.STEPS,
    *slides.STEPS,
    *league.STEPS,
    *feed.STEPS,
    *console.STEPS,
)


async def run_steps(demo: RunningDemo) -> bool:
    """Run all steps; whether none failed."""
    failed: list[str] = []
    skipped = 0
    for number, step in enumerate(STEPS, 1):
        demo.screen.line(f"\n[bold]{number}/{len(STEPS)} {step.service}: {escape(step.title)}[/]")
        outcome = await _run(demo, step)
        failed += [f"{number} ({step.title})"] if outcome == "failed" else []
        skipped += outcome == "skipped"
    demo.screen.line()
    if failed:
        demo.screen.line(f"[bold red]●[/] Failed: step {escape('; step '.join(failed))}.")
    else:
        rest = f", {skipped} skipped" if skipped else ""
        demo.screen.line(f"[bold green]●[/] All {len(STEPS) - skipped} steps passed{rest}.")
    return not failed


async def _run(demo: RunningDemo, step: Step) -> str:
    context = StepContext(demo)
    started = time.perf_counter()
    try:
        with demo.screen.status(step.title):
            await step.run(context)
    except StepSkipped as reason:
        demo.screen.line(f"  [yellow]- skipped: {escape(str(reason))}[/]")
        return "skipped"
    except (CheckFailed, UnexpectedStatus, EphemeraError, httpx.HTTPError, TimeoutError) as problem:
        demo.screen.line(f"  [bold red]✗ {escape(str(problem) or type(problem).__name__)}[/]")
        return "failed"
    demo.screen.line(f"  [bold green]✓ passed[/] [dim]{time.perf_counter() - started:.1f} s[/]")
    return "passed"
