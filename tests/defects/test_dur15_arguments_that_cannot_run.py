"""DUR15: `enqueue` refuses arguments that no worker could call the job with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from ephemera import Catalogue, keyspace
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidValue
from ephemera.patterns.jobs import BoundJobs, Job, Jobs, Run, sql_engine
from tests.patterns.job_store import attempt_by

pytestmark = pytest.mark.standalone("jobs refuse a cluster as their broker: Celery has no transport for one")

CATALOGUE = Catalogue("dur15")
JOBS = Jobs(CATALOGUE, "dur15_checkpoint:{job_id}", queues=("work",), name="dur15")


class Page(msgspec.Struct):
    """A structured argument."""

    number: int
    at: datetime


@JOBS.job(queue="work")
async def read(run: Run, page: Page, owner: UUID | None = None, *, scale: float = 1.0) -> str:
    """Returns what it got."""
    return f"{page.number} {page.at.year} {owner} {scale}"


@JOBS.job(queue="work")
async def positional(run: Run, number: int, /) -> None:
    """Cannot be called by name."""


@JOBS.job(queue="work")
async def variadic(run: Run, *numbers: int) -> None:
    """Cannot be called by name either."""


@JOBS.job(queue="work")
async def keywords(run: Run, /, **numbers: int) -> None:
    """Has arguments without names."""


@JOBS.job(queue="work")
async def untyped(run: Run, value: Any) -> Any:
    """Takes anything that JSON can hold."""
    return value


@pytest.fixture
async def jobs(server: Valkey, postgres: Postgres) -> AsyncIterator[BoundJobs]:
    """Jobs whose attempts the test makes itself."""
    engine = sql_engine(postgres.database("test_dur15"))
    async with keyspace.connect(server.url, CATALOGUE, resources={JOBS: engine}) as store:
        await store[JOBS].create_tables()
        yield store[JOBS]
    await engine.dispose()


@pytest.mark.parametrize(
    ("job", "args", "kwargs", "message"),
    [
        (positional, (1,), {}, "parameters that can be passed by name"),
        (variadic, (1, 2), {}, "parameters that can be passed by name"),
        (keywords, (), {"one": 1}, "parameters that can be passed by name"),
        (read, ("page 1",), {}, "page: Expected `object`, got `str`"),
        (read, (Page("one", datetime.now(UTC)),), {}, "Expected `int`, got `str`"),  # type: ignore[arg-type]
        (read, (Page(1, datetime.now(UTC)), "anna"), {}, "owner: "),
        (read, (Page(1, datetime.now(UTC)),), {"scale": "large"}, "scale: "),
        (read, (), {}, "missing a required argument: 'page'"),
        (read, (Page(1, datetime.now(UTC)),), {"colour": 1}, "unexpected keyword argument 'colour'"),
        (untyped, (object(),), {}, "unsupported"),
        (untyped, ([float("nan")],), {}, "the number nan"),
        (untyped, ({"a": "b\0"},), {}, "the character NUL"),
        (untyped, ("\ud800",), {}, "surrogates not allowed"),
    ],
)
async def test_dur15_arguments_that_cannot_run_are_refused(
    jobs: BoundJobs, job: Job[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    """The error names the argument, in `enqueue` and not in a worker; no row is written."""
    with pytest.raises(InvalidValue, match=message):
        await jobs.enqueue(job, *args, **kwargs)
    assert await jobs.find(kind=job.kind) == []


async def test_dur15_arguments_that_can_run_are_accepted(jobs: BoundJobs) -> None:
    """What converts back to the annotated types is run with them."""
    page = Page(3, datetime(2026, 5, 1, tzinfo=UTC))
    job_id = await jobs.enqueue(read, page, UUID(int=1), scale=2)
    assert await attempt_by(jobs).run(job_id) == "done"
    assert await jobs.result(job_id) == f"3 2026 {UUID(int=1)} 2.0"
