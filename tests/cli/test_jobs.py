"""`ephemera worker` and `ephemera jobs`: run, list, show, retry and cancel, on real servers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Postgres, Valkey
from ephemera.keyspace import SERVER_IDENTITY
from ephemera.patterns.jobs import BoundJobs, Cron, Schedule, Unique
from ephemera.patterns.jobs._enqueue import NewJob
from ephemera.patterns.jobs._schedules import ScheduleDispatcher
from tests.cli.commands import ephemera
from tests.patterns.job_fixtures import JOBS, generate, ingest
from tests.patterns.job_store import attempt_by, opened
from tests.patterns.wait_for_jobs import ended, stepped

NAME = "tests.patterns.job_fixtures:JOBS"
MAIN = "from ephemera.cli import main; main()"


@pytest.fixture
def own() -> Iterator[Valkey]:
    """A server whose queues belong to this test."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture
def sql(postgres: Postgres, key: str) -> str:
    """A database of the test's own."""
    return postgres.database(key[:60])


@pytest.fixture
async def jobs(own: Valkey, sql: str) -> AsyncIterator[BoundJobs]:
    """Jobs on both."""
    async with opened(own.url, sql) as live:
        yield live


@pytest.fixture(autouse=True)
def environment(own: Valkey, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers, as an operator would set them in the environment."""
    monkeypatch.setenv("EPHEMERA_URL", own.url)
    monkeypatch.setenv("EPHEMERA_DATABASE_URL", sql)


async def run(*words: str, **env: str) -> Any:
    """Run a command next to the test's own event loop."""
    return await asyncio.to_thread(ephemera, *words, env=env)


async def dead(jobs: BoundJobs, unique: Unique | None = None) -> str:
    """A dead job."""
    job_id = await jobs.enqueue(ingest.options(unique=unique))
    row = await jobs._backend.rows.claim(job_id, "one", jobs.declaration.lease)
    assert row is not None
    await jobs._backend.rows.record(None, job_id, row.fence, "parse", b'["a","b"]')
    await jobs._backend.rows.fail(job_id, row.fence, "dead", "ValueError: no\nmore of it")
    return job_id


async def test_jobs_are_listed_by_state_and_kind(jobs: BoundJobs) -> None:
    """The table and the JSON show the jobs in SQL; an unknown state is wrong usage."""
    waiting, given_up = await jobs.enqueue(generate, 3), await dead(jobs)
    shown = await run("jobs", "list", NAME)
    assert shown.code == 0
    assert waiting in shown.out
    assert "ValueError: no" in shown.out
    narrow = (await run("jobs", "list", NAME, COLUMNS="80")).out
    assert waiting in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    found = msgspec.json.decode((await run("jobs", "list", NAME, "--state", "dead", "--json")).out)
    assert [(job["id"], job["kind"], job["state"]) for job in found] == [(given_up, "ingest", "dead")]
    assert (await run("jobs", "list", NAME, "--kind", "nothing")).out == "No jobs found.\n"
    wrong = await run("jobs", "list", NAME, "--state", "lost")
    assert (wrong.code, "'lost' is not one of waiting, running" in wrong.said) == (2, True)


async def test_options_and_schedules_are_listed(jobs: BoundJobs) -> None:
    """The list says which jobs are delayed, unique or urgent; schedules have their next run."""
    later = generate.options(delay=timedelta(days=1), priority=7, unique=Unique(key="weekly"))
    await jobs.enqueue(later, 3)
    listed = await run("jobs", "list", NAME)
    assert "priority 7, unique, not before 20" in listed.out
    assert (await run("jobs", "schedules", NAME)).out.startswith("No schedules found")
    monday = Cron("0 3 * * 1", tz="Europe/Berlin")
    schedule = Schedule("weekly deck", monday, generate, NewJob("", b"{}", None))
    await ScheduleDispatcher(JOBS.tables, jobs.engine, {"weekly deck": schedule}).dispatch()
    shown = await run("jobs", "schedules", NAME)
    assert (shown.code, "0 3 * * 1 Europe/Berlin" in shown.out) == (0, True)
    (found,) = msgspec.json.decode((await run("jobs", "schedules", NAME, "--json")).out)
    assert (found["name"], found["kind"], found["last_run_at"]) == ("weekly deck", "generate", None)
    assert found["next_run_at"][:16] in shown.out.replace(" ", "T")


async def test_queues_are_paused_and_resumed(jobs: BoundJobs) -> None:
    """The list shows what a queue does and whether it may; a paused queue starts nothing."""
    await jobs.enqueue(generate, 3)
    await jobs.set_limits("export", max_running=2)
    assert (await run("jobs", "pause", NAME, "generation")).out == "The queue generation is paused.\n"
    assert [each.queue for each in await jobs.queues() if each.paused] == ["generation"]
    assert await attempt_by(jobs).claims.due("generation", 1) == []
    shown = await run("jobs", "queues", NAME)
    assert (shown.code, "paused" in shown.out, "2 at once" in shown.out) == (0, True, True)
    found = {
        each["settings"]["queue"]: each
        for each in msgspec.json.decode((await run("jobs", "queues", NAME, "--json")).out)
    }
    assert (found["generation"]["waiting"], found["generation"]["settings"]["paused"]) == (1, True)
    assert (await run("jobs", "resume", NAME, "generation")).code == 0
    assert len(await attempt_by(jobs).claims.due("generation", 1)) == 1
    wrong = await run("jobs", "pause", NAME, "generations")
    assert (wrong.code, "'generations' is not one of generation" in wrong.said) == (2, True)


async def test_a_job_is_shown_with_its_steps(jobs: BoundJobs) -> None:
    """Text and JSON show the whole job; an unknown id is an error."""
    job_id = await dead(jobs)
    shown = await run("jobs", "show", NAME, job_id)
    assert shown.code == 0
    assert "ValueError: no" in shown.out
    assert "parse" in shown.out
    found = msgspec.json.decode((await run("jobs", "show", NAME, job_id, "--json")).out)
    assert found["steps"] == {"parse": ["a", "b"]}
    assert found["job"]["attempts"] == 1
    assert (await run("jobs", "show", NAME, job_id, "--wait")).code == 1
    unknown = await run("jobs", "show", NAME, "unknown")
    assert (unknown.code, unknown.err) == (1, "ephemera: the job 'unknown' is not in the table\n")


async def test_dead_jobs_are_retried(jobs: BoundJobs) -> None:
    """By id or all at once, they are queued again and resume after their last step."""
    first, second = await dead(jobs), await dead(jobs)
    assert (await run("jobs", "retry", NAME, first)).out == f"{first} (ingest) was queued again.\n"
    assert (await jobs.get(second)).state == "dead"
    again = msgspec.json.decode((await run("jobs", "retry", NAME, "--all-dead", "--json")).out)
    assert [job["id"] for job in again] == [second]
    assert (await run("jobs", "retry", NAME, "--all-dead")).out == "There are no dead jobs.\n"
    assert await attempt_by(jobs).run(first) == "done"
    assert (await jobs.get(first)).result["words"] == ["a", "b"]
    assert (await run("jobs", "retry", NAME)).code == 2
    refused = await run("jobs", "retry", NAME, first)
    assert (refused.code, "cannot be retried: it is done" in refused.err) == (1, True)


async def test_a_job_that_cannot_be_changed_does_not_delay_the_others(jobs: BoundJobs) -> None:
    """The others are retried or cancelled; an error names each that was not, and why."""
    first, same = await dead(jobs), Unique(key="spring")
    replaced = await dead(jobs, same)
    successor = await jobs.enqueue(ingest.options(unique=same))
    reason = "a job with the same unique key is open"
    retried = await run("jobs", "retry", NAME, "--all-dead")
    assert retried.out == f"{first} (ingest) was queued again.\n"
    assert retried.err == f"ephemera: the job {replaced!r} cannot be retried: {reason}\n"
    assert retried.code == 1
    assert (await jobs.get(first)).state == "waiting"
    cancelled = await run("jobs", "cancel", NAME, "unknown", replaced, successor, "--json")
    assert [job["id"] for job in msgspec.json.decode(cancelled.out)] == [successor]
    assert (cancelled.code, cancelled.err.count("ephemera: the job")) == (1, 2)


async def test_jobs_are_cancelled(jobs: BoundJobs) -> None:
    """A waiting job is cancelled; a finished one cannot be."""
    job_id = await jobs.enqueue(generate, 3)
    assert (await run("jobs", "cancel", NAME, job_id)).out == f"{job_id} (generate) was cancelled.\n"
    assert (await jobs.get(job_id)).state == "cancelled"
    refused = await run("jobs", "cancel", NAME, job_id)
    assert (refused.code, "has ended already" in refused.err) == (1, True)


async def test_a_database_without_the_tables_is_a_one_line_error(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's error and the likely cause are printed."""
    monkeypatch.setenv("EPHEMERA_DATABASE_URL", postgres.database("nothing_here"))
    outcome = await run("jobs", "list", NAME)
    assert outcome.code == 1
    assert outcome.err.startswith('ephemera: the database refused: relation "jobs" does not exist')
    assert outcome.err.count("\n") == 1


def test_a_name_without_jobs_is_an_error() -> None:
    """The error lists the module's own jobs."""
    outcome = ephemera("jobs", "list", "tests.patterns.job_fixtures:nothing")
    assert (outcome.code, "its Jobs: JOBS" in outcome.said) == (2, True)


@pytest.mark.usefixtures("jobs")
def test_a_worker_on_a_cluster_is_refused_with_the_reason(cluster: Cluster) -> None:
    """Before anything is started."""
    outcome = ephemera("worker", NAME, "--url", cluster.url, "--delivery", "celery")
    assert outcome.code == 2
    assert "kombu has no transport for one" in outcome.err


def test_a_worker_refuses_wrong_arguments() -> None:
    """Unknown queues and levels, and invalid database URLs, are refused."""
    for words, message in (
        (["--queue", "nothing"], "use generation, ingestion, export"),
        (["--log-level", "loud"], "'loud' is not one of"),
        (["--delivery", "pigeon"], "'pigeon' is not one of sql, celery"),
        (["--delivery", "celery", "--concurrency", "9"], "Celery runs one job in a process"),
        (["--database-url", "sqlite:///file"], "the tables are in PostgreSQL, not in sqlite"),
    ):
        outcome = ephemera("worker", NAME, *words)
        assert outcome.code == 2
        assert message in outcome.said


async def test_a_worker_runs_jobs_until_it_is_stopped(jobs: BoundJobs) -> None:
    """It runs jobs of its queues only, and on SIGTERM hands back running jobs and exits cleanly."""
    command = [sys.executable, "-c", MAIN, "worker", NAME, "--queue", "generation"]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, stderr=subprocess.PIPE
    )
    try:
        other = await jobs.enqueue(ingest)
        assert (await ended(jobs, await jobs.enqueue(generate, 2))).state == "done"
        job_id = await jobs.enqueue(generate, 1000, 0.1)
        await stepped(jobs, job_id, 2)
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 0
    assert ((await jobs.get(job_id)).state, (await jobs.get(other)).state) == ("waiting", "waiting")
    assert all(msgspec.json.decode(line)["level"] for line in logged.splitlines() if line.startswith(b"{"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter: started by root, PostgreSQL runs as another one."""
    folder = Path(tempfile.mkdtemp(prefix="ephemera-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def development_worker(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A worker without a database of its own, and the URL that it logs."""
    command = [sys.executable, "-c", MAIN, "worker", NAME, "--development", "--data", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if b"development only" in line)
        assert f"{folder}/postgresql" in line.decode()
        yield process, line.decode().partition("database URL ")[2].partition('"')[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)


async def test_a_worker_in_development_brings_its_database(
    own: Valkey, monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    """It starts a PostgreSQL that keeps its data, and other workers of the same folder use it."""
    monkeypatch.delenv("EPHEMERA_DATABASE_URL")
    with development_worker(open_folder) as (_, url):
        async with opened(own.url, url) as jobs:
            assert (await ended(jobs, await jobs.enqueue(generate, 1))).state == "done"
        with development_worker(open_folder) as (_, same):
            assert same == url
    assert (open_folder / "postgresql" / "PG_VERSION").exists()


def test_no_database_is_started_where_a_url_was_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without `--development`, a worker without a database URL is refused."""
    monkeypatch.delenv("EPHEMERA_DATABASE_URL")
    outcome = ephemera("worker", NAME, "--data", str(tmp_path))
    assert outcome.code == 2
    assert "in development, --development starts" in outcome.said
    assert not list(tmp_path.iterdir())


async def test_a_marked_server_can_be_operated(jobs: BoundJobs, own: Valkey) -> None:
    """An operator can retry and cancel jobs on a marked server."""
    job_id = await dead(jobs)
    own.ask("SET", SERVER_IDENTITY.key(), "another")
    assert (await run("jobs", "retry", NAME, job_id)).code == 0
    assert (await run("jobs", "cancel", NAME, job_id)).code == 0
    row = await jobs.get(job_id)
    assert row is not None
    assert row.state == "cancelled"
