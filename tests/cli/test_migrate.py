"""`ephemera migrate`: up, current and sql, on a real database."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.embedded import Postgres, Valkey
from ephemera.sql import verify
from tests.cli.commands import Outcome, ephemera
from tests.sql.databases import empty_database, url_of
from tests.sql.declared_tables import SHOP

MODULE = "tests.sql.declared_tables"
WHAT = ("--catalogue", f"{MODULE}:SHOP.catalogue", "--declaration", f"{MODULE}:SHOP.once")


@pytest.fixture
async def engine(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncEngine]:
    """An empty database, as an operator would set it in the environment."""
    async with empty_database(postgres) as opened:
        monkeypatch.setenv("EPHEMERA_DATABASE_URL", url_of(opened))
        yield opened


async def run(*words: str) -> Outcome:
    """Run a command next to the test's own event loop."""
    return await asyncio.to_thread(ephemera, "migrate", *words)


async def test_up_creates_what_current_misses(engine: AsyncEngine) -> None:
    """`current` fails until `up` has run; the second `up` has nothing to do."""
    before = await run("current", *WHAT)
    assert (before.code, before.out.count("run migrate up")) == (1, 6)
    first = await run("up", *WHAT)
    assert (first.code, first.out.count("0 -> 1")) == (0, 6)
    second = await run("up", *WHAT, "--json")
    assert [row["found"] for row in msgspec.json.decode(second.out)] == [1] * 6
    after = await run("current", *WHAT, "--json")
    assert after.code == 0
    usable = {(row["component"], row["name"]) for row in msgspec.json.decode(after.out) if row["usable"]}
    assert {("jobs", "mails"), ("planner", "news"), ("events", "handled_events")} < usable
    await verify(engine, SHOP.catalogue, SHOP.once)


async def test_sql_is_printed_and_not_executed(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sql` prints what the database needs, or an empty one without a URL; psycopg executes it as it is."""
    pending = await run("sql", *WHAT)
    assert (await run("current", *WHAT)).code == 1
    with psycopg.connect(url_of(engine), autocommit=True) as sql:
        sql.execute(pending.out.encode())
    await verify(engine, SHOP.catalogue, SHOP.once)
    assert "CREATE TABLE" not in (await run("sql", *WHAT)).out
    monkeypatch.delenv("EPHEMERA_DATABASE_URL")
    assert "CREATE TABLE jobs" in (await run("sql", *WHAT)).out


async def test_a_worker_does_not_start_without_its_tables(engine: AsyncEngine, server: Valkey) -> None:
    """The worker exits before it starts a process, and names the command to run."""
    words = ("worker", f"{MODULE}:SHOP.mails", "--url", server.url)
    refused = await asyncio.to_thread(ephemera, *words)
    assert refused.code == 1
    assert refused.err.startswith("ephemera: the SQL tables of jobs 'mails' are missing")
    assert "ephemera migrate up" in refused.err


async def test_the_extra_of_jobs_is_not_needed(engine: AsyncEngine, tmp_path: Path) -> None:
    """A service with other tables than those of jobs has the extra `sql` alone, and perhaps a `postgres://`."""
    (tmp_path / "guards.py").write_text(
        "from ephemera.patterns.events import OnceGuard\n\nONCE = OnceGuard()\n"
    )
    program = "import sys; sys.modules['cronsim'] = None; from ephemera.cli import main; main()"
    command = [sys.executable, "-c", program, "migrate", "up", "--declaration", "guards:ONCE"]
    url = url_of(engine).replace("postgresql://", "postgres://", 1)
    migrated = await asyncio.to_thread(
        subprocess.run,
        [*command, "--database-url", url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert (migrated.returncode, migrated.stdout) == (0, "events handled_events: 0 -> 1\n"), migrated.stderr


async def test_wrong_names_and_databases_are_one_line(engine: AsyncEngine) -> None:
    """What has no tables, and a database that cannot be reached, end with a line that says so."""
    for words, message in (
        (("up",), "name a catalogue or a declaration with tables"),
        (("up", "--declaration", f"{MODULE}:PLANS"), "is a dict, which has no SQL tables"),
        (("up", *WHAT, "--database-url", "sqlite:///file"), "in PostgreSQL, not in sqlite"),
    ):
        outcome = await run(*words)
        assert outcome.code == 2
        assert message in outcome.said
    outcome = await run("up", *WHAT, "--database-url", "postgresql://localhost:1/none")
    assert outcome.code == 1
    assert outcome.err.startswith("ephemera: the database refused")
    empty = await run("up", "--catalogue", "tests.cli.shop_keys:catalogue")
    assert (empty.code, empty.err) == (0, "No tables are declared.\n")
