"""The SQL side of a lock: a table that remembers the largest fence of each lock, and refuses a smaller one.

    GUARD = FenceGuard()
    await connection.execute(GUARD.table)                               # once, with the other tables
    async with store[INGEST].hold(schema="bible") as held, connection.transaction():
        cursor = await connection.execute(GUARD.pyformat, GUARD.values(held))
        GUARD.admit(held, await cursor.fetchone())                       # StaleFence: roll back
        ...                                                              # writes of the same transaction

It must be the first statement of the transaction that writes. It locks the fence's row until the commit, so
an older and a newer holder are served one after the other: the older either commits before the newer begins,
or is refused. PostgreSQL and SQLite understand it; `pyformat` is for psycopg, `named` for `sqlalchemy.text`
and sqlite3. Where a row of one's own is all that is written, a column does as well: `UPDATE ... SET fence =
:fence WHERE id = :id AND fence <= :fence`, and no row changed means refused.
"""

from __future__ import annotations

import re

from ephemera.errors import InvalidValue, StaleFence
from ephemera.patterns.locks._held_lock import Held

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")

_TABLE = """\
CREATE TABLE IF NOT EXISTS {name} (
    lock text PRIMARY KEY,
    fence bigint NOT NULL,
    seen timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""

_CLAIM = """\
INSERT INTO {name} AS known (lock, fence) VALUES ({lock}, {fence})
ON CONFLICT (lock) DO UPDATE SET fence = excluded.fence, seen = CURRENT_TIMESTAMP
WHERE known.fence <= excluded.fence
RETURNING fence"""


class FenceGuard:
    """The statements of one table of fences; several services may share it, keys tell locks apart."""

    def __init__(self, table: str = "lock_fences") -> None:
        if not _NAME.fullmatch(table):
            raise InvalidValue("table", "a name, or schema.name", repr(table))
        self.table = _TABLE.format(name=table)
        """Creates the table if it is not there."""
        self.pyformat = _CLAIM.format(name=table, lock="%(lock)s", fence="%(fence)s")
        """Gives a row, or none to a stale fence; for drivers that take `%(name)s`, as psycopg does."""
        self.named = _CLAIM.format(name=table, lock=":lock", fence=":fence")
        """The same for `:name`."""

    def values(self, held: Held) -> dict[str, str | int]:
        """What the statement takes."""
        return {"lock": held.key, "fence": held.fence}

    def admit(self, held: Held, row: object) -> None:
        """Raise `StaleFence` when the statement gave no row."""
        if row is None:
            raise StaleFence(held.key, held.fence)
