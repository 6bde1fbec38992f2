"""Databases of tests of migrations, and what Alembic would change in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.embedded import Postgres
from ephemera.patterns.jobs import sql_engine


@asynccontextmanager
async def empty_database(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """An engine on a new database."""
    engine = sql_engine(postgres.database(f"empty_{uuid4().hex}"))
    try:
        yield engine
    finally:
        await engine.dispose()


def url_of(engine: AsyncEngine) -> str:
    """The URL of an engine's database."""
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


async def proposals(engine: AsyncEngine, *metadata: sa.MetaData, **options: Any) -> list[Any]:
    """What autogenerate proposes for a project with this metadata."""
    strictly = {"compare_type": True, "compare_server_default": True, "include_schemas": True, **options}

    def compare(connection: sa.Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts=strictly)
        compared: Sequence[Any] = compare_metadata(context, list(metadata))  # type: ignore[arg-type]
        return list(compared)

    async with engine.connect() as sql:
        return await sql.run_sync(compare)
