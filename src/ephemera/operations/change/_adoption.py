"""Where to begin on a server that other libraries use: what each found library asks of you, in order.

Caches and limits come first, because losing them goes unnoticed; then locks, sessions and jobs.
"""

from __future__ import annotations

import msgspec

from ephemera.operations.audit import AuditReport, UnknownShape
from ephemera.operations.libraries import JOB_LIBRARIES, Library, library_of


class AdoptionStep(msgspec.Struct, frozen=True, kw_only=True):
    """One library: how much of it there is, what to know, what to change first, and where to read on."""

    library: str
    role: str
    keys: int
    patterns: list[str]
    hazards: list[str]
    first: str
    page: str


def adoption(report: AuditReport) -> list[AdoptionStep]:
    """The libraries that wrote the undeclared keys of an audit, in the order in which to replace them."""
    by_library: dict[str, list[UnknownShape]] = {}
    for shape in report.unknown.shapes:
        if shape.library is not None:
            by_library.setdefault(shape.library, []).append(shape)
    steps = [_step(library_of(name), shapes) for name, shapes in by_library.items()]
    return sorted(steps, key=lambda step: (_cost_of_a_mistake(step), -step.keys))


def _cost_of_a_mistake(step: AdoptionStep) -> int:
    """Caches and limits 0, locks 1, sessions and what else must not be lost 2, jobs 3."""
    if step.role == "cache":
        return 0
    if step.library in (each.name for each in JOB_LIBRARIES):
        return 3
    return 1 if step.page == "patterns/locks.md" else 2


def _step(library: Library, shapes: list[UnknownShape]) -> AdoptionStep:
    roles = {shape.role for shape in shapes}
    return AdoptionStep(
        library=library.name,
        role="queue" if "queue" in roles else "cache",
        keys=sum(shape.keys for shape in shapes),
        patterns=[shape.pattern or shape.reason or "" for shape in shapes],
        hazards=list(library.hazards),
        first=library.first,
        page=library.page,
    )
