"""`ephemera demo` on servers of the user's: what is on its screen is true, and it leaves nothing but them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.cli.commands import ephemera
from tests.cli.demonstrations import Demonstration, demonstrating
from tests.patterns.qdrant_server import QdrantServer

pytestmark = pytest.mark.timeout(400)  # it starts once for all tests here

SECRET = "s3cr3t-w0rd"
MOVED = {
    "identity": "SELECT count(*) FROM identity.sign_ins",
    "slides": "SELECT count(*) FROM slides.jobs WHERE state = 'done' AND kind = 'generate'",
    "scripture": "SELECT count(*) FROM scripture.user_history",
    "feed": "SELECT count(*) FROM feed.user_stats WHERE cluster_version > 0",
    "league": "SELECT count(*) FROM league.votes",
    "flushes": "SELECT count(*) FROM write_behind_marks",
}
"""What traffic brings into SQL: each of these counts grows from nothing."""


@pytest.fixture(scope="module")
def cache() -> Iterator[Valkey]:
    """A Redis of the user's, with a password, whose databases below 3 are in use."""
    with embedded.valkey(password=SECRET) as running:
        running.ask("SET", "somebody's", "data")
        yield running


@pytest.fixture(scope="module")
def queue() -> Iterator[Valkey]:
    """Another one, for queues."""
    with embedded.valkey() as running:
        yield running


@pytest.fixture(scope="module")
def qdrant() -> Iterator[QdrantServer]:
    """A server with Qdrant's routes."""
    with QdrantServer() as running:
        yield running


@pytest.fixture(scope="module")
def demonstration(
    cache: Valkey,
    queue: Valkey,
    postgres: Postgres,
    qdrant: QdrantServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Demonstration]:
    """A demonstration on that server, and a queue, a database and a Qdrant of the user's."""
    database = postgres.database("given_to_the_demonstration")
    given = ("--url", f"{cache.url}/3", "--queue-url", f"{queue.url}/9", "--database-url", database)
    with demonstrating(tmp_path_factory.mktemp("demo"), *given, "--qdrant-url", qdrant.url) as running:
        running.wait_until_ready()
        yield running


def test_every_printed_address_answers(demonstration: Demonstration) -> None:
    """Whoever opens a URL of the screen gets a page; the console's only with the password that is shown."""
    rows = demonstration.rows
    for system in ("identity", "slides", "scripture", "feed", "league"):
        assert httpx.get(rows[system]).status_code == 200, system
    console = rows["console"]
    with httpx.Client(base_url=console, headers={"origin": console.rstrip("/")}) as visitor:
        assert visitor.get("/").status_code != 200
        form = {"user": "demo", "password": demonstration.console_password, "next": "/"}
        assert visitor.post("/sign-in", data=form).status_code == 303
        assert visitor.get("/").status_code == 200
    assert Path(rows["logs"]).is_dir()


def test_every_printed_command_can_be_typed(demonstration: Demonstration, cache: Valkey) -> None:
    """What the screen says to try works as it stands, but for a password, which it does not show."""
    assert SECRET not in demonstration.printed
    where = f"127.0.0.1:{cache.port}"
    kinds = set()
    for command in demonstration.commands:
        kind, *words = shlex.split(command)
        kinds.add(Path(kind).name)
        if kind == "curl":
            assert httpx.get(words[-1]).status_code == 200, command
        elif kind.endswith("ephemera"):
            assert shutil.which(kind), "as it is printed, in this folder"
            outcome = ephemera(*(word.replace(where, f":{SECRET}@{where}") for word in words))
            assert outcome.code in (0, 1), outcome.err  # 1 is what an audit finds
            assert "cannot" not in outcome.err, outcome.err
        else:
            assert os.getpgid(int(words[-1])) == int(words[-1]), "it names a process of the demonstration"
    assert kinds == {"curl", "ephemera", "kill"}


def test_traffic_moves_every_system(
    demonstration: Demonstration, cache: Valkey, queue: Valkey, qdrant: QdrantServer, postgres: Postgres
) -> None:
    """Each system's rows grow, each has keys in its own database of Redis, and one event is a dead letter."""
    with psycopg.connect(postgres.database("given_to_the_demonstration"), autocommit=True) as sql:
        for system, question in MOVED.items():
            asked = partial(_count, sql, question)
            demonstration.until(asked, f"traffic in {system}")
    demonstration.until(
        lambda: set(re.findall(r"db(\d+):", str(cache.ask("INFO", "keyspace")))) == set("034567"),
        "keys of all systems, each in its database",
    )
    demonstration.until(
        lambda: set(re.findall(r"db(\d+):", str(queue.ask("INFO", "keyspace")))) >= {"10", "11", "12"},
        "what slides, scripture and feed have in the queue, each in its database",
    )
    assert demonstration.rows["queue"].startswith(queue.url)
    assert demonstration.rows["Qdrant"] == qdrant.url
    demonstration.until(lambda: len(_collections(qdrant)) >= 2, "collections of slides and scripture")
    look = next(each for each in demonstration.commands if "events dead" in each)
    words = shlex.split(look)[1:]
    demonstration.until(lambda: "there is no user" in ephemera(*words).out, "a dead letter")


def _collections(qdrant: QdrantServer) -> list[Any]:
    found: list[Any] = httpx.get(f"{qdrant.url}/collections").json()["result"]["collections"]
    return found


def _count(sql: psycopg.Connection[Any], question: str) -> int:
    row = sql.execute(question).fetchone()
    return int(row[0]) if row else 0


def test_a_process_that_dies_is_reported_and_ctrl_c_ends_the_others(
    demonstration: Demonstration, cache: Valkey, postgres: Postgres
) -> None:
    """The screen names it, and how it ended; then SIGINT ends all of it, and nothing of the user's."""
    logs = Path(demonstration.rows["logs"])
    worker = next(int(each.split()[-1]) for each in demonstration.commands if each.startswith("kill"))
    os.kill(worker, signal.SIGKILL)
    told = "slides-worker-1 was killed (SIGKILL); its log is " + str(logs / "slides-worker-1.log")
    demonstration.until(lambda: told in demonstration.printed, "the report")
    assert '{"time"' not in demonstration.printed, "its log knows nothing of it"
    assert demonstration.end(signal.SIGINT) == 0
    assert f"All of it is gone. The logs stay in {logs}." in demonstration.printed
    assert (logs / "identity.log").exists()
    assert cache.ask("GET", "somebody's") == "data"
    assert int(str(cache.ask("DBSIZE"))) == 1
    with psycopg.connect(postgres.database("given_to_the_demonstration")) as sql:
        assert _count(sql, MOVED["league"]) > 0, "what was written stays"
