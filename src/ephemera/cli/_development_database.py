"""The database of a worker in development: an embedded PostgreSQL, where no URL of another one is given.

It is used only if `--development` says so, never because a setting is missing: a worker in production whose
`--database-url` was forgotten must not start with an empty database. Its data is kept between runs. The first
worker that needs it starts it, and it ends with that worker; others of the same folder share it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ephemera import embedded

if TYPE_CHECKING:
    from ephemera.patterns.jobs import Jobs

_SOCKET_FOLDER = 4  # the line of postmaster.pid, from 0
_log = logging.getLogger("ephemera.jobs")


@contextmanager
def development_database(jobs: Jobs, folder: Path) -> Iterator[str]:
    """The URL of an embedded PostgreSQL that has the tables of these jobs."""
    data = folder.absolute() / "postgresql"
    if (url := _running(data)) is not None:
        yield _prepared(jobs, url, data)
        return
    data.parent.mkdir(parents=True, exist_ok=True)
    with embedded.postgres(data=data) as server:
        yield _prepared(jobs, server.url, data)


def _running(data: Path) -> str | None:
    """The URL of the server that another process has started on this folder."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        os.kill(int(lines[0]), 0)
        return f"postgresql://postgres@/postgres?host={quote(lines[_SOCKET_FOLDER], safe='')}"
    except (OSError, IndexError, ValueError):
        return None


def _prepared(jobs: Jobs, url: str, data: Path) -> str:
    from ephemera.sql import migrate, sql_engine

    async def create_tables() -> None:
        engine = sql_engine(url)
        try:
            await migrate(engine, jobs)
        finally:
            await engine.dispose()

    asyncio.run(create_tables())
    _log.warning(
        "development only: jobs are in an embedded PostgreSQL, which keeps its data in %s; "
        "your service connects to it with the database URL %s",
        data,
        url,
    )
    return url
