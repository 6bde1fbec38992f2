"""Declaring jobs: what cannot work fails where it is written, and every key is in the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from ephemera import Catalogue
from ephemera.errors import InvalidDeclaration
from ephemera.patterns.jobs import Jobs, Run
from ephemera.patterns.jobs._job_definition import annotation, decode_arguments, encode_arguments, retry_delay
from tests.patterns.job_fixtures import CATALOGUE, JOBS, PROGRESS

if TYPE_CHECKING:
    from decimal import Decimal


class Document(msgspec.Struct):
    """An argument that is more than a number."""

    id: UUID
    uploaded: datetime


async def index(run: Run, document: Document, pages: list[int]) -> None:
    """Takes typed arguments."""


def block(run: Run) -> None:
    """Is not `async`."""


def price() -> Decimal:
    """Says what cannot be imported."""
    raise NotImplementedError


@pytest.fixture
def made() -> Jobs:
    """A declaration of its own."""
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
    """One script writes both, also on a cluster."""
    assert JOBS.checkpoints.key(job_id="7") == "gen_checkpoint:{7}"
    assert PROGRESS.key(job_id="7") == "gen_progress:{7}"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"checkpoint": "checkpoint:{id}"}, "its one field is {job_id}"),
        ({"queues": ()}, "it has no queues"),
        ({"queues": ("a b",)}, "is not a plain name"),
        ({"name": "my-jobs"}, "is not a plain name"),
        ({"final_event": str}, "`final_event` makes progress events"),
    ],
)
def test_declarations_that_cannot_work_are_refused(options: dict[str, Any], told: str) -> None:
    """Each with what to do."""
    with pytest.raises(InvalidDeclaration, match=told):
        Jobs(Catalogue("wrong"), **{"checkpoint": "checkpoint:{job_id}", "queues": ("work",), **options})


def test_kinds_that_cannot_work_are_refused(made: Jobs) -> None:
    """A queue nobody has, a function that is not async, no attempts, the same name twice."""
    declare: list[tuple[Callable[[], Any], str]] = [
        (lambda: made.job(queue="other")(index), "there is no such queue"),
        (lambda: made.job(queue="work")(block), "a job is an `async def`"),  # type: ignore[arg-type]
        (lambda: made.job(queue="work", attempts=0)(index), "both must be above 0"),
        (lambda: made.job(queue="work", time_limit=timedelta(0))(index), "both must be above 0"),
    ]
    for wrong, told in declare:
        with pytest.raises(InvalidDeclaration, match=told):
            wrong()
    made.job(queue="work")(index)
    with pytest.raises(InvalidDeclaration, match="it is declared twice"):
        made.job(queue="work")(index)


def test_arguments_come_back_as_what_they_were(made: Jobs) -> None:
    """They are plain data in SQL, and typed again in the worker."""
    job = made.job(queue="work")(index)
    document = Document(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC))
    stored = encode_arguments(job, (document,), {"pages": [1, 2]})
    assert msgspec.json.decode(msgspec.json.encode(stored)) == stored
    assert decode_arguments(job, stored) == {"document": document, "pages": [1, 2]}


def test_waits_between_attempts_double_up_to_a_minute() -> None:
    """1, 2, 4, ... 60 seconds."""
    waits = [retry_delay(attempt).total_seconds() for attempt in (1, 2, 3, 7, 50)]
    assert waits == [1, 2, 4, 60, 60]


def test_an_annotation_that_cannot_be_read_is_told() -> None:
    """A result is stored by its annotation, so that must be importable."""
    assert annotation(index, "pages") == list[int]
    assert annotation(len, "return") is Any
    with pytest.raises(InvalidDeclaration, match=r"price.*'return' cannot be resolved: name 'Decimal'"):
        annotation(price, "return")
