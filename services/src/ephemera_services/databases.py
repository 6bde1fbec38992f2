"""The SQL side of a service: an engine on PostgreSQL, its tables, and an embedded server where none is named.

Tables live in a schema with the system's name, so that systems may share a database. They are created at the
start if they are not there, by one process at a time. Errors and logs never show what statements were given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateSchema

_CONNECTIONS = 10
_PATIENCE = 5  # seconds to wait for a connection
_SESSION = "-c statement_timeout=10s -c timezone=UTC -c idle_in_transaction_session_timeout=30s"


@asynccontextmanager
async def opened_engine(url: str, tables: MetaData) -> AsyncIterator[AsyncEngine]:
    """An engine whose tables are there."""
    engine = create_async_engine(
        driven(url),
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_PATIENCE,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"options": _SESSION, "connect_timeout": _PATIENCE},
    )
    try:
        async with engine.begin() as sql:
            await one_at_a_time(sql, f"tables of {tables.schema}")
            if tables.schema is not None:
                await sql.execute(CreateSchema(tables.schema, if_not_exists=True))
            await sql.run_sync(tables.create_all)
        yield engine
    finally:
        await engine.dispose()


async def one_at_a_time(sql: AsyncConnection, what: str) -> None:
    """Wait until no other transaction does this; until the end of this one, none will."""
    await sql.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:what, 0))"), {"what": what})


def driven(url: str) -> str:
    """A PostgreSQL URL for SQLAlchemy, by psycopg."""
    return "postgresql+psycopg://" + url.partition("://")[2]
