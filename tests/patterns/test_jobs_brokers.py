"""The broker: each URL of a store as Celery's settings, and real workers on the unusual ones."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Sentinel
from ephemera.errors import InvalidUrl
from ephemera.patterns.jobs._celery import broker_for
from tests.patterns.job_fixtures import generate
from tests.patterns.job_store import opened
from tests.patterns.job_worker import Worker
from tests.patterns.wait_for_jobs import ended


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
    async with opened(sentinel.url, sql) as jobs:
        with Worker(sentinel.url, sql):
            assert (await ended(jobs, await jobs.enqueue(generate, 2))).state == "done"


async def test_a_worker_connects_by_a_socket_and_a_password(tmp_path: Path, postgres: Postgres) -> None:
    """A worker runs jobs over a unix socket, and on a server that requires a password."""
    socket, sql = tmp_path / "redis.sock", postgres.database("test_jobs_socket")
    with embedded.valkey(password="s3cret@:/", config={"unixsocket": str(socket)}):
        url = f"unix://:s3cret%40%3A%2F@{socket}?db=1"
        async with opened(url, sql) as jobs:
            with Worker(url, sql):
                assert (await ended(jobs, await jobs.enqueue(generate, 2))).state == "done"
