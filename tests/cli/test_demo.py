"""`ephemera demo` on the user's servers: its overview is correct, and it leaves nothing behind but them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.cli.commands import ephemera
from tests.cli.demo_process import DemoProcess, running_demo
from tests.patterns.qdrant_server import QdrantServer

pytestmark = pytest.mark.timeout(400)  # one demo for all tests of this file

SECRET = "s3cr3t-w0rd"
GROWING = {
    "identity": "SELECT count(*) FROM identity.sign_ins",
    "slides": "SELECT count(*) FROM slides.jobs WHERE state = 'done' AND kind = 'generate'",
    "scripture": "SELECT count(*) FROM scripture.user_history",
    "feed": "SELECT count(*) FROM feed.user_stats WHERE cluster_version > 0",
    "league": "SELECT count(*) FROM league.votes",
    "flushes": "SELECT count(*) FROM write_behind_last_batches",
}
"""What traffic writes to SQL: each of these counts grows from zero."""


@pytest.fixture(scope="module")
def cache() -> Iterator[Valkey]:
    """The user's Redis, with a password, whose databases below 3 are in use."""
    with embedded.valkey(password=SECRET) as running:
        running.ask("SET", "users", "data")
        yield running


@pytest.fixture(scope="module")
def queue() -> Iterator[Valkey]:
    """A second Redis, for the queue role."""
    with embedded.valkey(password=SECRET) as running:
        yield running


@pytest.fixture(scope="module")
def qdrant() -> Iterator[QdrantServer]:
    """A server with Qdrant's routes."""
    with QdrantServer() as running:
        yield running


@pytest.fixture(scope="module")
def demo(
    cache: Valkey,
    queue: Valkey,
    postgres: Postgres,
    qdrant: QdrantServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DemoProcess]:
    """A demo on the user's cache, queue, database and Qdrant."""
    database = postgres.database("demo_external")
    flags = ("--url", f"{cache.url}/3", "--queue-url", f"{queue.url}/9", "--database-url", database)
    with running_demo(tmp_path_factory.mktemp("demo"), *flags, "--qdrant-url", qdrant.url) as running:
        running.wait_until_ready()
        yield running


def test_every_printed_address_answers(demo: DemoProcess) -> None:
    """Every URL of the overview returns a page; the console's only with the printed password."""
    rows = demo.rows
    for service in ("identity", "slides", "scripture", "feed", "league"):
        assert httpx.get(rows[service]).status_code == 200, service
    console = rows["console"]
    with httpx.Client(base_url=console, headers={"origin": console.rstrip("/")}) as visitor:
        assert visitor.get("/").status_code != 200
        form = {"user": "demo", "password": demo.console_password, "next": "/"}
        assert visitor.post("/sign-in", data=form).status_code == 303
        assert visitor.get("/").status_code == 200
    assert Path(rows["logs"]).is_dir()


def _with_passwords(words: Iterable[str]) -> list[str]:
    """The arguments of a printed command, with the passwords that are left out."""
    return [word.replace("redis://", f"redis://:{SECRET}@") for word in words]


def test_every_printed_command_can_be_typed(demo: DemoProcess) -> None:
    """Every suggested command works as printed, except that passwords are left out."""
    assert SECRET not in demo.printed
    kinds = set()
    for command in demo.commands:
        kind, *words = shlex.split(command)
        kinds.add(Path(kind).name)
        if kind == "curl":
            headers = dict(words[at + 1].split(": ", 1) for at, option in enumerate(words) if option == "-H")
            assert httpx.get(words[-1], headers=headers).status_code == 200, command
        elif kind.endswith("ephemera"):
            assert shutil.which(kind), "as it is printed, in this folder"
            outcome = ephemera(*_with_passwords(words))
            assert outcome.code in (0, 1), outcome.err  # 1 is what an audit finds
            assert "cannot" not in outcome.err, outcome.err
        else:
            assert os.getpgid(int(words[-1])) == int(words[-1]), "it names a process of the demo"
    assert kinds == {"curl", "ephemera", "kill"}


def test_traffic_reaches_every_service(
    demo: DemoProcess, cache: Valkey, queue: Valkey, qdrant: QdrantServer, postgres: Postgres
) -> None:
    """Each service's rows grow, each has keys in its own Redis database, and one event is a dead letter."""
    with psycopg.connect(postgres.database("demo_external"), autocommit=True) as sql:
        for service, query in GROWING.items():
            poll = partial(_count, sql, query)
            demo.wait_until(poll, f"traffic in {service}")
    demo.wait_until(
        lambda: set(re.findall(r"db(\d+):", str(cache.ask("INFO", "keyspace")))) == set("034567"),
        "keys of all services, each in its database",
    )
    demo.wait_until(
        lambda: set(re.findall(r"db(\d+):", str(queue.ask("INFO", "keyspace")))) >= {"10", "11", "12"},
        "queue keys of slides, scripture and feed, each in its database",
    )
    assert demo.rows["queue"].startswith(f"redis://127.0.0.1:{queue.port}")
    assert demo.rows["Qdrant"] == qdrant.url
    demo.wait_until(lambda: len(_collections(qdrant)) >= 2, "collections of slides and scripture")
    command = next(each for each in demo.commands if "events dead" in each)
    words = _with_passwords(shlex.split(command)[1:])
    demo.wait_until(lambda: "there is no user" in ephemera(*words).out, "a dead letter")


def _collections(qdrant: QdrantServer) -> list[Any]:
    found: list[Any] = httpx.get(f"{qdrant.url}/collections").json()["result"]["collections"]
    return found


def _count(sql: psycopg.Connection[Any], query: str) -> int:
    row = sql.execute(query).fetchone()
    return int(row[0]) if row else 0


def test_a_process_that_dies_is_reported_and_ctrl_c_ends_the_others(
    demo: DemoProcess, cache: Valkey, postgres: Postgres
) -> None:
    """A killed process is reported; SIGINT then stops the demo and leaves the user's servers alone."""
    logs = Path(demo.rows["logs"])
    worker = next(int(each.split()[-1]) for each in demo.commands if each.startswith("kill"))
    os.kill(worker, signal.SIGKILL)
    report = "slides-worker-1 was killed (SIGKILL); its log is " + str(logs / "slides-worker-1.log")
    demo.wait_until(lambda: report in demo.printed, "the report")
    assert '{"time"' not in demo.printed, "its log has nothing about it"
    assert demo.stop(signal.SIGINT) == 0
    assert f"Everything is stopped and removed. The logs are kept in {logs}." in demo.printed
    assert (logs / "identity.log").exists()
    assert cache.ask("GET", "users") == "data"
    assert int(str(cache.ask("DBSIZE"))) == 1
    with psycopg.connect(postgres.database("demo_external")) as sql:
        assert _count(sql, GROWING["league"]) > 0, "what was written stays"
