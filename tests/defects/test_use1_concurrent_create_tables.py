"""USE1: `jobs.create_tables()` from two workers at once failed with an IntegrityError."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import MetaData

from ephemera.embedded import Postgres, Valkey
from ephemera.sql import versions
from tests.sql.databases import empty_database, url_of
from tests.sql.declared_tables import Declared

_PROCESSES = 4
_WORKER = """
import asyncio, os, sys
from sqlalchemy import MetaData
from ephemera import connect
from ephemera.patterns.jobs import sql_engine
from ephemera.patterns.write_behind import create_tables
from tests.sql.declared_tables import Declared

async def main():
    declared, engine = Declared(MetaData(schema="app")), sql_engine(os.environ["SQL"])
    resources = {declared.jobs: engine, declared.planner: engine}
    async with connect(os.environ["REDIS"], declared.catalogue, resources=resources) as store:
        async with engine.connect():
            print("ready", flush=True)
            sys.stdin.readline()
        await store[declared.jobs].create_tables()
        await store[declared.planner].create_tables()
        await create_tables(engine)
    await engine.dispose()

asyncio.run(main())
"""


async def test_use1_any_number_of_processes_create_the_tables_at_once(
    postgres: Postgres, server: Valkey
) -> None:
    """Processes that create the tables of an empty database in the same moment all succeed."""
    declared = Declared(MetaData(schema="app"))
    async with empty_database(postgres) as engine:
        assert _run_at_once({**os.environ, "SQL": url_of(engine), "REDIS": server.url}) == [""] * _PROCESSES
        found = await versions(engine, declared.jobs, declared.planner, declared.views)
    assert [version.found for version in found] == [1, 1, 1]


def _run_at_once(environment: dict[str, str]) -> list[str]:
    """Let processes begin together when all are ready; returns what each one wrote to stderr."""
    command, root, pipe = [sys.executable, "-c", _WORKER], Path(__file__).parents[2], subprocess.PIPE
    processes = [
        subprocess.Popen(command, cwd=root, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(_PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate(timeout=100)[1] for process in processes]
