"""Declarations of jobs: mistakes raise where they are made, and every key is in the catalogue."""

from __future__ import annotations

import subprocess
import sys
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
from ephemera.errors import InvalidDeclaration, MissingExtra, MissingResource
from ephemera.patterns.jobs import Jobs, Retry, Run, Unique, WorkerSettings, run_worker, sql_engine
from ephemera.patterns.jobs._job_definition import annotation, decode_arguments, encode_arguments
from tests.patterns.job_fixtures import CATALOGUE, JOBS, PROGRESS, worker_context

if TYPE_CHECKING:
    from decimal import Decimal


class Document(msgspec.Struct):
    """A structured argument."""

    id: UUID
    uploaded: datetime


async def index(run: Run, document: Document, pages: list[int]) -> None:
    """Takes typed arguments."""


def price() -> Decimal:
    """Has an annotation that cannot be resolved."""
    raise NotImplementedError


@pytest.fixture
def made() -> Jobs:
    """A declaration for one test."""
    return Jobs(Catalogue("declared"), "checkpoint:{job_id}", queues=("work",))


def test_every_key_is_declared() -> None:
    """The checkpoint, its progress, the wake channel, Celery's queues and bookkeeping, the reaper's lock."""
    assert {space.pattern for space in CATALOGUE} == {
        "gen_checkpoint:{job_id}",
        "gen_progress:{job_id}",
        "pubsub:gen_progress",
        "celery_queue:{queue}",
        "jobs:wake",
        "jobs:unacked",
        "jobs:unacked_index",
        "jobs:unacked_mutex",
        "jobs:finished",
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
    """An unknown queue, a colon in the name, no attempts, and a duplicate name are refused."""
    declare: list[tuple[Callable[[], Any], str]] = [
        (lambda: made.job(queue="other")(index), "there is no such queue"),
        (lambda: made.job(queue="work", name="mail:index")(index), "a colon in a job's name"),
        (lambda: made.job(queue="work", retry=Retry(attempts=0))(index), "a job needs at least 1"),
        (lambda: made.job(queue="work", time_limit=timedelta(0))(index), "it must be above 0"),
    ]
    for wrong, message in declare:
        with pytest.raises(InvalidDeclaration, match=message):
            wrong()
    made.job(queue="work")(index)
    with pytest.raises(InvalidDeclaration, match="it is declared twice"):
        made.job(queue="work")(index)


def test_a_key_of_ones_own_is_never_that_of_compared_arguments() -> None:
    """Whatever the key is, a job that compares its arguments does not have it."""
    compared = Unique().key_for("index", {"page": 1})
    rest = compared.removeprefix("index:")
    assert all(Unique(key=key).key_for("index", {}) != compared for key in (compared, rest))


def test_arguments_keep_their_types(made: Jobs) -> None:
    """They are JSON in SQL, and have their types again in the worker."""
    job = made.job(queue="work")(index)
    document = Document(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC))
    stored = encode_arguments(job, (document,), {"pages": [1, 2]})
    assert msgspec.json.decode(msgspec.json.encode(stored)) == stored
    assert decode_arguments(job, stored) == {"document": document, "pages": [1, 2]}


def test_waits_between_attempts_double_up_to_a_minute() -> None:
    """The delays are 1, 2, 4, ... 60 seconds, or as the policy says, and jitter only shortens them."""
    policy = Retry(jitter=0)
    assert [policy.delay(attempt).total_seconds() for attempt in (1, 2, 3, 7, 50, 5000)] == [
        1,
        2,
        4,
        60,
        60,
        60,
    ]
    slow = Retry(backoff=timedelta(seconds=10), factor=3, max_delay=timedelta(hours=1), jitter=0.5)
    delays = [slow.delay(2).total_seconds() for _ in range(100)]
    assert 15 <= min(delays) < max(delays) <= 30


def test_a_retry_policy_decides_by_attempt_and_error() -> None:
    """Errors that are not retried fail the job at once; others end it after the last attempt."""
    policy = Retry(attempts=2, on=(OSError, ValueError), give_up_on=(FileNotFoundError,), jitter=0)
    assert policy.decide(1, OSError()) == timedelta(seconds=1)
    assert policy.decide(2, OSError()) == "dead"
    assert policy.decide(1, FileNotFoundError()) == "failed"
    assert policy.decide(1, KeyError()) == "failed"
    refused: list[Any] = [{"factor": 0.5}, {"jitter": 2}, {"backoff": timedelta(seconds=-1)}]
    for wrong in refused:
        with pytest.raises(InvalidDeclaration, match="Retry"):
            Retry(**wrong)


def test_a_kind_can_have_a_name_of_its_own(made: Jobs) -> None:
    """The function may be renamed as long as `name=` stays."""
    assert made.job(queue="work", name="index_v1")(index).kind == "index_v1"
    assert list(made.kinds) == ["index_v1"]


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
    async with opened(engine) as ours:  # the decorators leave a factory what it is
        assert ours == {PROGRESS: engine}
    assert made.worker_context(worker_context) is not None


def test_celery_is_needed_only_where_it_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are declared without Celery, and a worker that would need it names the extra."""
    program = "import sys; sys.modules['celery'] = sys.modules['kombu'] = None; import ephemera.patterns.jobs"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    monkeypatch.setitem(sys.modules, "celery", None)
    settings = WorkerSettings("redis://localhost", "postgresql://localhost/unused")
    with pytest.raises(MissingExtra, match=r"pip install 'ephemera-data\[celery\]'"):
        run_worker(JOBS, settings, delivery="celery")


async def test_jobs_without_an_engine_are_refused(server: Valkey) -> None:
    """`store[JOBS]` says how to pass the engine."""
    async with connect(server.url, CATALOGUE) as store:
        with pytest.raises(MissingResource, match="an AsyncEngine"):
            store[JOBS]
