"""The broker: each URL of a store as Celery's settings, and real workers on the unusual ones."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Sentinel, Valkey
from ephemera.errors import InvalidUrl
from ephemera.patterns.jobs._celery_worker import broker_for, celery_app
from ephemera.patterns.jobs._delivery import TASK, priority_level
from tests.patterns.job_fixtures import JOBS, generate
from tests.patterns.job_store import opened
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended


@pytest.fixture
def own_queue() -> Iterator[Valkey]:
    """A server of a test's own."""
    with embedded.valkey() as running:
        yield running


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("redis://[::1]:7000/3", "redis://[::1]:7000/3"),
        ("redis://me:p%40ss@queue:7000/3?timeout=1", "redis://me:p%40ss@queue:7000/3"),
        ("redis://:secret@queue", "redis://:secret@queue:6379/0"),
        ("unix:///run/redis.sock?db=2", "redis+socket:///run/redis.sock?virtual_host=2"),
        (
            "redis+sentinel://:secret@a,b:26380/mymaster/1",
            "sentinel://:secret@a:26379/1;sentinel://:secret@b:26380/1",
        ),
    ],
)
def test_a_store_url_becomes_a_broker_url(url: str, broker: str) -> None:
    """Celery gets the same host, port, database and credentials."""
    assert broker_for(url).url == broker


def test_sentinels_have_a_master_and_their_own_credentials() -> None:
    """They become kombu's transport options."""
    found = broker_for("redis+sentinel://a/mymaster?sentinel_user=watch&sentinel_password=secret")
    asking = {"username": "watch", "password": "secret"}
    assert found.transport == {"master_name": "mymaster", "sentinel_kwargs": asking}


def test_tls_checks_certificates() -> None:
    """`rediss` never means an unchecked certificate."""
    found = broker_for("rediss://queue?ca=/ca.pem&cert=/me.pem&key=/me.key")
    assert found.url == "rediss://queue:6379/0"
    assert found.tls == {
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_ca_certs": "/ca.pem",
        "ssl_certfile": "/me.pem",
        "ssl_keyfile": "/me.key",
    }


def test_tls_is_for_sentinels_too() -> None:
    """`rediss+sentinel` uses TLS with the Sentinels as with the master."""
    found = broker_for("rediss+sentinel://a,b/mymaster?ca=/ca.pem")
    tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/ca.pem"}
    assert found.tls == tls
    assert found.transport == {"master_name": "mymaster", "sentinel_kwargs": {"ssl": True, **tls}}


def test_a_cluster_is_refused_with_the_reason() -> None:
    """Kombu cannot use one, and its own error is late and obscure; ours comes at the start."""
    with pytest.raises(InvalidUrl, match="cannot be on a cluster, because kombu has no transport for one"):
        broker_for("redis+cluster://a:7000,b:7001")


async def test_a_worker_finds_its_queues_behind_sentinel(sentinel: Sentinel, postgres: Postgres) -> None:
    """A job is enqueued, delivered, run and recorded through Sentinel."""
    sql = postgres.database("test_jobs_sentinel")
    async with opened(sentinel.url, sql, delivery="celery") as jobs:
        with Worker(sentinel.url, sql, delivery="celery"):
            assert (await ended(jobs, await jobs.enqueue(generate, 2))).state == "done"


async def test_a_worker_connects_by_a_socket_and_a_password(tmp_path: Path, postgres: Postgres) -> None:
    """A worker runs jobs over a unix socket, and on a server that requires a password."""
    socket, sql = tmp_path / "redis.sock", postgres.database("test_jobs_socket")
    with embedded.valkey(password="s3cret@:/", config={"unixsocket": str(socket)}):
        url = f"unix://:s3cret%40%3A%2F@{socket}?db=1"
        async with opened(url, sql, delivery="celery") as jobs:
            with Worker(url, sql, delivery="celery"):
                assert (await ended(jobs, await jobs.enqueue(generate, 2))).state == "done"


@pytest.mark.parametrize("delivery", ["sql", "celery"])
async def test_a_worker_runs_jobs_by_priority_then_in_order(
    own_queue: Valkey, postgres: Postgres, delivery: str
) -> None:
    """Of jobs that wait when a worker starts, the highest priority begins first, and of one the oldest."""
    sql = postgres.database(f"test_jobs_priorities_{delivery}")
    async with opened(own_queue.url, sql, delivery=delivery) as jobs:
        priorities = [0, 5, -3, 1, 5, 0, -9, 9, 1, -3]
        ids = [await jobs.enqueue(generate.options(priority=each), 0) for each in priorities]
        with Worker(own_queue.url, sql, delivery=delivery):
            rows = [await ended(jobs, job_id) for job_id in ids]
    started = sorted(rows, key=lambda row: str(row.started_at))
    order = sorted(range(len(ids)), key=lambda place: -priorities[place])
    assert [ids.index(row.id) for row in started] == order


def test_a_message_without_a_limit_has_the_longest_one() -> None:
    """One that a process sent that does not know the kind is killed at the longest limit, not never."""

    def run(job_id: str) -> str:
        return job_id

    app = celery_app(JOBS, "redis://localhost", JOBS.queues, run)
    longest = max(job.hard_limit for job in JOBS.kinds.values())
    assert app.tasks[TASK].time_limit == longest.total_seconds()


@pytest.mark.parametrize(("priority", "level"), [(0, 0), (5, -5), (-2, 2), (100, -9), (-100, 9)])
def test_priorities_have_levels(priority: int, level: int) -> None:
    """Those that kombu has no list for have the nearest."""
    assert priority_level(priority) == level
