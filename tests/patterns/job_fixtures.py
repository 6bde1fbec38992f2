"""Jobs for tests, which write a row to SQL for each effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import Column, Integer, MetaData, Table, Text, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Catalogue, Store
from ephemera.errors import JobFailed, JobSnoozed
from ephemera.patterns.jobs import JobRow, Jobs, Retry, Run, SyncRun
from ephemera.patterns.progress import Progress


class Stepped(msgspec.Struct, tag="stepped", frozen=True):
    """A step is done."""

    number: int


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """The job has ended."""

    state: str
    error: str | None = None


class Slide(msgspec.Struct, frozen=True):
    """The result of a step."""

    number: int
    by: str


CATALOGUE = Catalogue("test-jobs")
PROGRESS: Progress[Stepped | Ended] = Progress(
    CATALOGUE, "gen_progress:{job_id}", Stepped | Ended, wake="pubsub:gen_progress", terminal=Ended
)


def last_event(row: JobRow) -> Ended:
    """The last event of a job."""
    return Ended(row.state, row.error)


METADATA = MetaData()
JOBS = Jobs(
    CATALOGUE,
    "gen_checkpoint:{job_id}",
    queues=("generation", "ingestion", "export"),
    progress=PROGRESS,
    final_event=last_event,
    metadata=METADATA,
    lease=timedelta(seconds=3),
)
EFFECTS = Table(
    "effects",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("fence", Integer, nullable=False),
)
"""A row for each effect of a job, duplicates included."""


@JOBS.worker_context
@asynccontextmanager
async def worker_context(_: Store, engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
    """The engine, to show that jobs get what is opened here."""
    yield engine


async def noted(sql: AsyncConnection, run: Run, step: str) -> None:
    """Record an effect in a transaction."""
    await sql.execute(insert(EFFECTS).values(job_id=run.id, step=step, fence=run.fence))


async def write(engine: AsyncEngine, run: Run, step: str) -> None:
    """Record an effect in its own transaction."""
    async with engine.begin() as sql:
        await noted(sql, run, step)


@JOBS.job(queue="generation", retry=Retry(attempts=100), time_limit=timedelta(minutes=5))
async def generate(run: Run, slides: int, seconds: float = 0.0) -> list[str]:
    """Write slides, each an effect in SQL after a delay."""

    async def slide(sql: AsyncConnection, number: int) -> Slide:
        await noted(sql, run, f"slide:{number}")
        return Slide(number, f"fence {run.fence}")

    made = []
    for number in range(slides):
        await asyncio.sleep(seconds)
        done = await run.transact(f"slide:{number}", slide, number, event=Stepped(number))
        made.append(f"{done.number} by {done.by}")
    return made


@JOBS.job(queue="generation", retry=Retry(attempts=100))
def digest(run: SyncRun, parts: int, seconds: float = 0.0) -> list[str]:
    """Run the steps of a plain function."""

    def part(number: int) -> str:
        time.sleep(seconds)
        return f"part {number}"

    return [run.step(f"part:{number}", part, number, event=Stepped(number)) for number in range(parts)]


@JOBS.job(queue="ingestion", retry=Retry(attempts=3))
async def ingest(
    run: Run, fail_times: int = 0, give_up: bool = False, snooze: bool = False
) -> dict[str, Any]:
    """Run a plain function as a step, then fail a number of times."""

    def parse(text: str) -> list[str]:
        time.sleep(0.01)
        return text.split()

    words = await run.step("parse", parse, "a b c", event=lambda found: Stepped(len(found)))
    await write(run.worker_context, run, f"attempt:{run.attempt}")
    if snooze and run.fence == 1:
        raise JobSnoozed(timedelta(seconds=0.1))
    if give_up:
        raise JobFailed("the document is encrypted")
    if run.attempt <= fail_times:
        raise ValueError(f"attempt {run.attempt} went wrong")
    return {"words": words, "attempt": run.attempt}


@JOBS.job(queue="export", retry=Retry(attempts=2), time_limit=timedelta(seconds=1.5))
async def export(run: Run, seconds: float, block: bool = False) -> str:
    """Run a long step that can be cancelled, or (`block`) cannot."""
    work = time.sleep if block else asyncio.sleep
    await run.step("first", write, run.engine, run, "first")
    await run.step("long", work, seconds)
    await run.step("last", write, run.engine, run, "last")
    return "exported"


@JOBS.job(queue="export", retry=Retry(attempts=3))
async def conclude(run: Run, outcome: str) -> str:
    """Record a step, without a connection of the engine, and end in one of the ways."""
    await run.step("only", asyncio.sleep, 0.0)
    if outcome == "failed":
        raise JobFailed("it gave up")
    if outcome == "snoozed":
        raise JobSnoozed(timedelta(0))
    if outcome == "rescheduled":
        raise ValueError("it went wrong")
    return outcome


@JOBS.job(queue="export")
async def fetch(run: Run, port: int) -> str:
    """Wait for a server's answer, as for a model's."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return (await reader.readline()).decode()
    finally:
        writer.close()


@JOBS.job(queue="ingestion", retry=Retry(attempts=1), time_limit=timedelta(seconds=0.5))
async def compute(run: Run, seconds: float) -> None:
    """Block the event loop."""
    time.sleep(seconds)


async def effects(engine: AsyncEngine, job_id: str) -> dict[str, int]:
    """How often a job had each effect."""
    chosen = (
        select(EFFECTS.c.step, func.count().label("times"))
        .where(EFFECTS.c.job_id == job_id)
        .group_by(EFFECTS.c.step)
    )
    async with engine.connect() as sql:
        return {row.step: row.times for row in await sql.execute(chosen)}
