"""What PostgreSQL remembers of batches: the number of each shard's last one, and the rows that it refused.

Two small tables, written in the same transaction as the rows. The first has a row for each shard, and grows
no further.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.write_behind._batches import Batch, Row

METADATA = sa.MetaData()
"""The two tables that sinks need, for your migrations."""

MARKS = sa.Table(
    "write_behind_marks",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("written", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)
REFUSED = sa.Table(
    "write_behind_refused",
    METADATA,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("name", sa.Text, nullable=False, index=True),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("refused", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)


async def create_tables(engine: AsyncEngine) -> None:
    """Create the tables of batch numbers and of refused rows, if they are not there."""
    async with engine.begin() as connection:
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x77626D)))  # one at a time
        await connection.run_sync(METADATA.create_all)


class Refused(msgspec.Struct, frozen=True):
    """A row that SQL refused: its columns as JSON, or what was found in Redis, and why."""

    id: int
    payload: bytes
    reason: str

    def values(self) -> dict[str, Any]:
        """The columns; `ValueError` when it was no row in the first place."""
        values: dict[str, Any] = json.loads(self.payload)
        return values


def claim(batch: Batch) -> sa.Executable:
    """Takes the shard's row to the batch's number and keeps it locked; gives no row if it was there."""
    values = {"name": batch.name, "shard": batch.shard, "epoch": batch.epoch, "number": batch.number}
    adding = insert(MARKS).values(values)
    advance = {
        **{name: adding.excluded[name] for name in ("epoch", "number")},
        "written": sa.func.now(),
    }
    smaller = MARKS.c.number < adding.excluded.number
    return adding.on_conflict_do_update(
        index_elements=["name", "shard"], set_=advance, where=smaller
    ).returning(MARKS.c.number)


def of_shard(name: str, shard: int) -> sa.ColumnElement[bool]:
    """The shard's row."""
    return sa.and_(MARKS.c.name == name, MARKS.c.shard == shard)


def shown(columns: tuple[str, ...], row: Row) -> bytes:
    """A row for people, and to be recorded anew: JSON, whatever it holds."""
    return json.dumps(dict(zip(columns, row, strict=True)), default=str).encode()


async def put_aside(connection: AsyncConnection, name: str, aside: list[tuple[bytes, str]]) -> None:
    """Keep what was refused, each with the reason."""
    if aside:
        rows = [
            {"name": name, "payload": data, "reason": reason.replace("\x00", "")} for data, reason in aside
        ]
        await connection.execute(sa.insert(REFUSED), rows)
