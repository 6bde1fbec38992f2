"""Declarations of jobs and planners in a catalogue, found without importing packages that need an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ephemera.keyspace import Catalogue
from ephemera.operations._optional_types import is_instance

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.patterns.jobs import Jobs
    from ephemera.patterns.planner import Planner


def declared_jobs(catalogue: Catalogue) -> list[Jobs]:
    """The job queues that a catalogue declares."""
    found = [each for each in catalogue.patterns if is_instance(each, "ephemera.patterns.jobs", "Jobs")]
    return cast("list[Jobs]", found)


def declared_planners(catalogue: Catalogue) -> list[Planner]:
    """The planners that a catalogue declares."""
    found = [each for each in catalogue.patterns if is_instance(each, "ephemera.patterns.planner", "Planner")]
    return cast("list[Planner]", found)
