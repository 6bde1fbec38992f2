"""DUR8: results and errors of any content are stored; a finished job is done, and a real error is visible."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemera import Catalogue, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import JobFailed
from ephemera.patterns.jobs import BoundJobs, Jobs, Retry, Run, sql_engine
from tests.patterns.job_store import attempt_by

CATALOGUE = Catalogue("dur8")
JOBS = Jobs(CATALOGUE, "dur8:{job_id}", queues=("work",), name="dur8_jobs")

VALUES: dict[str, Any] = {
    "NUL": "a\x00b",
    "NUL in a key": {"a\x00": [None]},
    "infinities": [math.inf, -math.inf, 1.5, None],
    "surrogates": "\ud800 and \udfff",
    "emoji": "\N{WHALE} \\u0000",
    "our own mark": {"$json": "1"},
    "huge": "x" * 3_000_000,
}


class Unprintable(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


ERRORS: dict[str, Exception] = {
    "NUL": ValueError("a\x00b"),
    "surrogates": ValueError("\ud800"),
    "huge": ValueError("x" * 100_000),
    "unprintable": Unprintable(),
    "given up": JobFailed("a\x00\ud800"),
}


def value_of(name: str) -> Any:
    """One of the values."""
    return VALUES[name]


def not_a_number() -> float:
    """NaN, from an annotated step."""
    return math.nan


@JOBS.job(queue="work", retry=Retry(attempts=2))
async def value(run: Run, name: str) -> Any:
    """Return a value that a step returned."""
    return await run.step("value", value_of, name)


def nested(depth: int) -> Any:
    """A list in a list, and so on."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


TOO_MUCH: dict[str, Any] = {"a huge number": 10**5000, "deep nesting": nested(100_000), "an object": object()}


@JOBS.job(queue="work", retry=Retry(attempts=2))
async def too_much(run: Run, name: str) -> Any:
    """Return what no JSON can hold."""
    return TOO_MUCH[name]


@JOBS.job(queue="work", retry=Retry(attempts=1))
async def nan(run: Run) -> list[float]:
    """Return NaN that a step returned."""
    return [await run.step("nan", not_a_number)]


@JOBS.job(queue="work", retry=Retry(attempts=1))
async def wrong(run: Run, name: str) -> None:
    """Fail with an error."""
    raise ERRORS[name]


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs that run in this process."""
    engine = sql_engine(postgres.database("test_dur8"))
    async with connect(server.url, CATALOGUE, resources={JOBS: engine}) as store:
        await store[JOBS].create_tables()
        yield store[JOBS]
    await engine.dispose()


@pytest.mark.parametrize("name", VALUES)
async def test_dur8_a_result_is_stored_and_read_as_it_was(jobs: BoundJobs, name: str) -> None:
    """Whatever a step and its job return, the job is done at once, and its row has that value."""
    job_id = await jobs.enqueue(value, name)
    assert await attempt_by(jobs).run(job_id) == "done"
    row = await jobs.get(job_id)
    assert (row.state, row.attempts, row.result) == ("done", 1, VALUES[name])


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_dur8_a_job_whose_result_cannot_be_stored_is_done(jobs: BoundJobs, name: str) -> None:
    """Its work is done, so it is not repeated; the row says what became of the result."""
    job_id = await jobs.enqueue(too_much, name)
    assert await attempt_by(jobs).run(job_id) == "done"
    row = await jobs.get(job_id)
    assert (row.state, row.attempts, row.result) == ("done", 1, None)
    assert str(row.error).startswith("it is done, but its result could not be stored: ")


async def test_dur8_nan_is_stored_by_a_step_and_its_job(jobs: BoundJobs) -> None:
    """A step that returns NaN has a float, in this attempt and for the next one."""
    job_id = await jobs.enqueue(nan)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert math.isnan((await jobs.get(job_id)).result[0])
    assert await jobs._backend.queries.steps(job_id) == {"nan": b"NaN"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("NUL", "ValueError: a\\x00b"),
        ("surrogates", "ValueError: \\ud800"),
        ("huge", "ValueError: xxx"),
        ("unprintable", "Unprintable: (its text cannot be shown: RuntimeError)"),
        ("given up", "a\\x00\\ud800"),
    ],
)
async def test_dur8_the_real_error_is_visible(jobs: BoundJobs, name: str, shown: str) -> None:
    """The row has the job's own error, without what PostgreSQL refuses, and not that of storing it."""
    job_id = await jobs.enqueue(wrong, name)
    assert await attempt_by(jobs).run(job_id) in ("dead", "failed")
    error = str((await jobs.get(job_id)).error)
    assert error.startswith(shown)
    assert len(error) <= 4000
