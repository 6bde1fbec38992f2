"""What SQL charges organizations: between the minimum and the maximum that their presentations can have cost.

The last step of a presentation's job settles its usage: in the queue, under an id, so that it counts once; a
flusher writes it to SQL. So each job that has recorded this step is charged once, and one that has not, at
most once. It was settled between the record of the previous step and its own. If a queue's master died in
between, its successor may not know of it, and the charge may be lost. It is not made twice because of it: a
batch waits longer than replicas lag before it is written to SQL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MEASURES = ("presentations", "slides", "tokens")

JOBS = """
SELECT jobs.arguments ->> 'organization_id',
  sum((steps.result::jsonb ->> 'tokens')::bigint) FILTER (WHERE name = 'outline' OR name LIKE 'slide:%%'),
  extract(epoch FROM min(steps.done_at) FILTER (WHERE name = 'file')),
  extract(epoch FROM min(steps.done_at) FILTER (WHERE name = 'usage'))
FROM slides.jobs LEFT JOIN slides.jobs_steps AS steps ON steps.job_id = jobs.id
WHERE jobs.kind = 'generate' GROUP BY jobs.id
"""
"""Each presentation: whose it is, its tokens as recorded, and when it was filed and had been settled."""
CHARGED = """
SELECT organization_id, sum(presentations), sum(slides), sum(tokens)
FROM slides.usage_records GROUP BY organization_id
"""
"""What each organization is charged, whatever the month."""


class Job(NamedTuple):
    """A presentation: what it costs (at most, until it has settled), when it was filed, and had settled."""

    organization: str
    cost: Sequence[int]
    filed: float | None
    settled: float | None

    def in_doubt(self, crashes: Iterable[tuple[float, float]]) -> bool:
        """Whether a queue's master died so that it may have lost the settlement of this one."""
        if self.filed is None:
            return False
        until = float("inf") if self.settled is None else self.settled
        return any(begun <= until and self.filed <= end for begun, end in crashes)


class Bounds(NamedTuple):
    """The least and the most that an organization can have been charged, and how many are in doubt."""

    least: list[int]
    most: list[int]
    in_doubt: int

    def lacks(self, charged: Sequence[int]) -> bool:
        """Whether a presentation that has settled was not charged."""
        return any(amount < least for amount, least in zip(charged, self.least, strict=True))

    def exceeds(self, charged: Sequence[int]) -> bool:
        """Whether a presentation was charged twice."""
        return any(amount > most for amount, most in zip(charged, self.most, strict=True))


def bounds(jobs: Iterable[Job], crashes: Sequence[tuple[float, float]]) -> dict[str, Bounds]:
    """For each organization, by its presentations and the crashes of the queue's master."""
    found: dict[str, Bounds] = defaultdict(lambda: Bounds([0, 0, 0], [0, 0, 0], 0))
    for job in jobs:
        least, most, doubts = found[job.organization]
        in_doubt = job.in_doubt(crashes)
        for place, amount in enumerate(job.cost):
            least[place] += 0 if job.settled is None or in_doubt else amount
            most[place] += amount
        found[job.organization] = Bounds(least, most, doubts + in_doubt)
    return dict(found)
