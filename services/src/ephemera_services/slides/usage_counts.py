"""What jobs have spent, counted from their rows in SQL, and the counters of usage corrected by it.

Counters are fast, and lose what was not flushed if Redis loses its data. The jobs are the truth: a recount
adds up the tokens of their steps and the slides of their results, and settles the difference.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.usage import BoundUsage
from ephemera_services.runtime import problem
from ephemera_services.slides.keys import JOBS

_ROWS = JOBS.tables.jobs.c
_STEPS = JOBS.tables.steps.c
_SPENDING = or_(*(_STEPS.name.like(name) for name in ("outline", "slide:%", "failed:%")))
_KINDS = ("generate", "rewrite")


async def tokens_spent(engine: AsyncEngine, job_id: str) -> int:
    """The tokens of a job: of its outline and slides, and of calls that failed."""
    async with engine.connect() as sql:
        found = await sql.execute(select(_STEPS.result).where(_STEPS.job_id == job_id, _SPENDING))
        return sum(_tokens(result) for result in found.scalars())


def cost_of(tokens: int, micros_per_1k: int) -> int:
    """The cost of tokens in millionths, rounded up, so that small amounts are not lost."""
    return math.ceil(tokens * micros_per_1k / 1000)


def _tokens(result: str) -> int:
    step = json.loads(result)
    return int(step.get("tokens", 0)) if isinstance(step, dict) else 0


class UsageRecount:
    """Recounts the usage of organizations."""

    def __init__(self, engine: AsyncEngine, usage: BoundUsage, micros_per_1k: int) -> None:
        self._engine = engine
        self._usage = usage
        self._price = micros_per_1k

    async def reconcile(self, organization_id: UUID, period: str) -> tuple[dict[str, int], dict[str, int]]:
        """Correct the counters of a month; what the jobs add up to, and the corrections.

        409 while a job of the organization changes them.
        """
        counted = await self._count(organization_id, period)
        used = (await self._usage.totals(str(organization_id), period=period)).used
        corrected = {name: counted[name] - used[name] for name in counted}
        if any(corrected.values()):
            name = f"recount-{uuid4().hex}"
            await self._usage.reservation(str(organization_id), name, period).settle(**corrected)
        return counted, corrected

    async def _count(self, organization_id: UUID, period: str) -> dict[str, int]:
        mine: list[ColumnElement[Any]] = [
            _ROWS.kind.in_(_KINDS),
            _ROWS.arguments["organization_id"].astext == str(organization_id),
            _ROWS.arguments["period"].astext == period,
        ]
        changing = or_(_ROWS.state == "running", _ROWS.callback_due_at.is_not(None))
        done = (_ROWS.state == "done", _ROWS.kind == "generate")
        ended = _ROWS.state.in_(("done", "failed", "dead", "cancelled"))
        spent = select(_ROWS.id, _STEPS.result).join(JOBS.tables.steps, _STEPS.job_id == _ROWS.id)
        async with self._engine.connect() as sql:
            if (await sql.execute(select(func.count()).where(*mine, changing))).scalar_one():
                raise problem(409, "Presentations of this organization are being written; recount later.")
            results = (await sql.execute(select(_ROWS.result).where(*mine, *done))).scalars().all()
            steps = (await sql.execute(spent.where(*mine, ended, _SPENDING))).all()
        tokens: Counter[str] = Counter()
        for job_id, result in steps:
            tokens[job_id] += _tokens(result)
        return {
            "presentations": len(results),
            "slides": sum(int(result["slides"]) for result in results),
            "tokens": tokens.total(),
            "cost_micros": sum(cost_of(each, self._price) for each in tokens.values()),
        }
