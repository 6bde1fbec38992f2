"""`ephemera worker --system slides`: the jobs of all queues, or of those that are named.

The environment is read before anything begins, so what is wrong with it is told at once, not by a first job.
"""

from __future__ import annotations

from ephemera_services.slides.jobs import JOBS
from ephemera_services.slides.settings import Settings

__all__ = ["JOBS", "Settings"]
