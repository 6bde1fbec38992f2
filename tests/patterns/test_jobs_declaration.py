"""Declarations of jobs: mistakes raise where they are made, and every key is in the catalogue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Catalogue, connect
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, MissingResource
from ephemera.patterns.jobs import Jobs, Run, sql_engine
from ephemera.patterns.jobs._job_definition import annotation, decode_arguments, encode_arguments, retry_delay
from tests.patterns.job_fixtures import CATALOGUE, JOBS, PROGRESS

if TYPE_CHECKING:
    from decimal import Decimal


class Document(msgspec.Struct):
    """A structured argument."""

    id: UUID
    uploaded: datetime


async def index(run: Run, document: Document, pages: list[int]) -> None:
    """Takes typed arguments."""


def block(run: Run) -> None:
    """Is not `async`."""


BLOCK: Any = block


def price() -> Decimal:
    """Has an annotation that cannot be resolved."""
    raise NotImplementedError


@pytest.fixture
def made() -> Jobs:
    """A declaration for one test."""
    return Jobs(Catalogue("declared"), "checkpoint:{job_id}", queues=("work",))


def test_every_key_is_declared() -> None:
    """The checkpoint, its progress, Celery's queues and bookkeeping, and the reaper's lock."""
    assert {space.pattern for space in CATALOGUE} == {
        "gen_checkpoint:{job_id}",
        "gen_progress:{job_id}",
        "pubsub:gen_progress",
        "celery_queue:{queue}",
        "jobs:unacked",
        "jobs:unacked_index",
        "jobs:unacked_mutex",
        "jobs:reaper",
        "jobs:reaper:{slot_tag}:fence",
        "jobs:reaper:{slot_tag}:waiters",
        "jobs:reaper:{slot_tag}:wake:{waiter}",
    }
    assert JOBS.queue_key("generation") == "celery_queue:generation"
    assert JOBS.checkpoints.lifetime.milliseconds == 3_600_000
    assert {space.role for space in CATALOGUE} == {"queue"}


def test_checkpoint_and_progress_share_a_slot() -> None:
    """One script writes both, so they share a slot of a cluster."""
    assert JOBS.checkpoints.key(job_id="7") == "gen_checkpoint:{7}"
    assert PROGRESS.key(job_id="7") == "gen_progress:{7}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "checkpoint:{id}"}, "its one field is {job_id}"),
        ({"queues": ()}, "it has no queues"),
        ({"queues": ("a b",)}, "is not a plain name"),
        ({"name": "my-jobs"}, "is not a plain name"),
        ({"final_event": str}, "`final_event` makes progress events"),
    ],
)
def test_declarations_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    """Each error says what to do."""
    with pytest.raises(InvalidDeclaration, match=message):
        Jobs(Catalogue("wrong"), **{"checkpoint": "checkpoint:{job_id}", "queues": ("work",), **options})


def test_kinds_that_cannot_work_are_refused(made: Jobs) -> None:
    """An unknown queue, a function that is not async, no attempts, and a duplicate name are refused."""
    declare: list[tuple[Callable[[], Any], str]] = [
        (lambda: made.job(queue="other")(index), "there is no such queue"),
        (lambda: made.job(queue="work")(BLOCK), "a job is an `async def`"),
        (lambda: made.job(queue="work", attempts=0)(index), "both must be above 0"),
        (lambda: made.job(queue="work", time_limit=timedelta(0))(index), "both must be above 0"),
    ]
    for wrong, message in declare:
        with pytest.raises(InvalidDeclaration, match=message):
            wrong()
    made.job(queue="work")(index)
    with pytest.raises(InvalidDeclaration, match="it is declared twice"):
        made.job(queue="work")(index)


def test_arguments_keep_their_types(made: Jobs) -> None:
    """They are JSON in SQL, and have their types again in the worker."""
    job = made.job(queue="work")(index)
    document = Document(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC))
    stored = encode_arguments(job, (document,), {"pages": [1, 2]})
    assert msgspec.json.decode(msgspec.json.encode(stored)) == stored
    assert decode_arguments(job, stored) == {"document": document, "pages": [1, 2]}


def test_waits_between_attempts_double_up_to_a_minute() -> None:
    """The delays are 1, 2, 4, ... 60 seconds."""
    waits = [retry_delay(attempt).total_seconds() for attempt in (1, 2, 3, 7, 50)]
    assert waits == [1, 2, 4, 60, 60]


def test_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    """A result is stored by its annotation, which must therefore be importable."""
    assert annotation(index, "pages") == list[int]
    assert annotation(len, "return") is Any
    with pytest.raises(InvalidDeclaration, match=r"price.*'return' cannot be resolved: name 'Decimal'"):
        annotation(price, "return")


async def test_store_resources_add_to_the_engine(made: Jobs) -> None:
    """A worker's store gets the engine and what `store_resources` opens, which is closed at the end."""
    engine, closed = sql_engine("postgresql://localhost/unused"), []

    async with made.open_resources(engine) as resources:
        assert resources == {made: engine}

    @made.store_resources
    @asynccontextmanager
    async def opened(given: AsyncEngine) -> AsyncIterator[dict[Any, object]]:
        yield {PROGRESS: given}
        closed.append(given)

    async with made.open_resources(engine) as resources:
        assert resources == {made: engine, PROGRESS: engine}
    assert closed == [engine]


async def test_jobs_without_an_engine_are_refused(server: Valkey) -> None:
    """`store[JOBS]` says how to pass the engine."""
    async with connect(server.url, CATALOGUE) as store:
        with pytest.raises(MissingResource, match="an AsyncEngine"):
            store[JOBS]
