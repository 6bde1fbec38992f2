"""The tables in which the sinks for PostgreSQL keep batch numbers, rejected rows and ids."""

from __future__ import annotations

import re
from functools import cache

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.errors import InvalidDeclaration
from ephemera.sql import SqlSchema, migrate

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class SinkTables:
    """Tables that sinks share: give the same object to the declaration, and to a `RecordTable`.

    Their rows are named by declaration, so one set is enough for a database. Give another `name` or a
    `metadata` where the names are taken, or where services that share a database keep apart.

    Args:
        name: The prefix of `{name}_last_batches`, `{name}_rejected` and `{name}_idempotency`.
        metadata: The application's own metadata: for a PostgreSQL schema, or the name of the version table.

    """

    def __init__(self, name: str = "write_behind", metadata: sa.MetaData | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidDeclaration(
                name, "is not a plain name", "use at most 41 lower-case letters, digits and _"
            )
        metadata = sa.MetaData() if metadata is None else metadata
        self.last_batches = sa.Table(
            f"{name}_last_batches",
            metadata,
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("epoch", sa.Text, nullable=False),
            sa.Column("number", sa.BigInteger, nullable=False),
            sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        )
        self.rejected = sa.Table(
            f"{name}_rejected",
            metadata,
            sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
            sa.Column("name", sa.Text, nullable=False, index=True),
            sa.Column("payload", sa.LargeBinary, nullable=False),
            sa.Column("reason", sa.Text, nullable=False),
            sa.Column(
                "rejected_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
            ),
        )
        self.idempotency = sa.Table(
            f"{name}_idempotency",
            metadata,
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
            sa.Index(f"ix_{name}_idempotency_stored_at", "stored_at"),
        )
        tables = [self.last_batches, self.rejected, self.idempotency]
        self.sql_schema = SqlSchema("write_behind", name, tables)

    def is_shard(self, name: str, shard: int) -> sa.ColumnElement[bool]:
        """Select the row of a shard."""
        return sa.and_(self.last_batches.c.name == name, self.last_batches.c.shard == shard)

    def __repr__(self) -> str:
        return f"<SinkTables {self.last_batches.fullname.removesuffix('_last_batches')!r}>"


@cache
def default_tables() -> SinkTables:
    """The tables of declarations and sinks that name no others."""
    return SinkTables()


async def create_tables(engine: AsyncEngine, tables: SinkTables | None = None) -> None:
    """Create or upgrade the tables that the sinks need, as `ephemera migrate up` does."""
    await migrate(engine, tables or default_tables())
