"""The table of fencing tokens in SQL, which refuses a holder that was followed by another."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from ephemera.errors import InvalidValue, StaleFencingToken
from ephemera.patterns.locks._held_lock import HeldLock

if TYPE_CHECKING:  # it needs the extra `sql`
    from ephemera.sql import SqlSchema

_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")

_CREATE_TABLE = """\
CREATE TABLE IF NOT EXISTS {name} (
    lock text PRIMARY KEY,
    fence bigint NOT NULL,
    seen timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""

_ADMIT = """\
INSERT INTO {name} AS known (lock, fence) VALUES ({lock}, {fence})
ON CONFLICT (lock) DO UPDATE SET fence = excluded.fence, seen = CURRENT_TIMESTAMP
WHERE known.fence <= excluded.fence
RETURNING fence"""


class FenceGuard:
    """A SQL table that remembers the largest fencing token of each lock, and refuses a smaller one.

        GUARD = FenceGuard()
        await ephemera.sql.migrate(engine, GUARD)                       # or `ephemera migrate up`
        async with store[INGEST].hold(schema="bible") as held, connection.transaction():
            cursor = await connection.execute(GUARD.pyformat, GUARD.values(held))
            GUARD.admit(held, await cursor.fetchone())                   # StaleFencingToken: roll back
            ...                                                          # writes of the same transaction

    It must be the first statement of the transaction that writes. It locks the fence's row until the commit,
    which serializes an older and a newer holder: the older one either commits before the newer begins, or is
    refused. PostgreSQL and SQLite understand it. Several services may share the table, as keys identify
    locks; each permit of a semaphore has a row of its own. Where you write to a single row of your own, a
    column does as well: `UPDATE ... SET fence = :fence WHERE id = :id AND fence <= :fence`, and no row
    changed means refused. `version_table` names the table in which migrations keep the version; by default
    `ephemera_schema`.
    """

    def __init__(self, table: str = "lock_fences", *, version_table: str | None = None) -> None:
        if not _TABLE_NAME.fullmatch(table):
            raise InvalidValue("table", "a name, or schema.name", repr(table))
        self.name = table
        self._version_table = version_table
        self.table = _CREATE_TABLE.format(name=table)
        """Creates the table in SQLite; in PostgreSQL, use `ephemera migrate`."""
        self.pyformat = _ADMIT.format(name=table, lock="%(lock)s", fence="%(fence)s")
        """Returns a row, or none for a stale fence; for drivers that take `%(name)s`, such as psycopg."""
        self.named = _ADMIT.format(name=table, lock=":lock", fence=":fence")
        """The same for drivers that take `:name`, such as `sqlalchemy.text` and sqlite3."""

    @cached_property
    def sql_schema(self) -> SqlSchema:
        """The table in PostgreSQL, for migrations; needs the extra `sql`."""
        from sqlalchemy import BigInteger, Column, DateTime, Text, func

        from ephemera.sql import SqlSchema

        now = func.current_timestamp()
        return SqlSchema.of_table(
            "locks",
            self.name,
            Column("lock", Text, primary_key=True),
            Column("fence", BigInteger, nullable=False),
            Column("seen", DateTime(timezone=True), nullable=False, server_default=now),
            version_table=self._version_table,
        )

    def values(self, held: HeldLock) -> dict[str, str | int]:
        """The parameters of the statement."""
        return {"lock": held.fenced, "fence": held.fence}

    def admit(self, held: HeldLock, row: object) -> None:
        """Raise `StaleFencingToken` when the statement returned no row."""
        if row is None:
            raise StaleFencingToken(held.fenced, held.fence)
