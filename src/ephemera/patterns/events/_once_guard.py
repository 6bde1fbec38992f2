"""Exactly-once effects in SQL: a table of handled events, so that a second delivery has no effect.

    ONCE = OnceGuard()
    await ephemera.sql.migrate(engine, ONCE)                              # or `ephemera migrate up`

    async def register(event: UserRegistered, delivery: Delivery) -> None:
        async with pool.connection() as sql, sql.transaction():
            cursor = await sql.execute(ONCE.pyformat, ONCE.values(delivery))
            if ONCE.is_first(await cursor.fetchone()):
                ...                                                        # writes of the same transaction

The row and the effect commit together or not at all. Of two concurrent deliveries, the second one waits for
the commit of the first and then finds its row; after a rollback it becomes the first. PostgreSQL and SQLite
accept the statement; `pyformat` is for psycopg, `named` for `sqlalchemy.text` and sqlite3. Delete rows whose
event cannot be delivered again, after a month for example: `DELETE ... WHERE handled < ...`.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from ephemera.errors import InvalidValue
from ephemera.patterns.events._entries import REPLAYED, Delivery

if TYPE_CHECKING:  # it needs the extra `sql`
    from ephemera.sql import SqlSchema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")

_TABLE = """\
CREATE TABLE IF NOT EXISTS {name} (
    stream text NOT NULL,
    consumers text NOT NULL,
    event text NOT NULL,
    handled timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (stream, consumers, event)
)"""

_CLAIM = """\
INSERT INTO {name} (stream, consumers, event) VALUES ({stream}, {consumers}, {event})
ON CONFLICT DO NOTHING
RETURNING event"""


class OnceGuard:
    """The statements of one table of handled events, which streams and groups can share.

    `version_table` names the table in which migrations keep the version; by default `ephemera_schema`.
    """

    def __init__(self, table: str = "handled_events", *, version_table: str | None = None) -> None:
        if not _NAME.fullmatch(table):
            raise InvalidValue("table", "a name, or schema.name", repr(table))
        names = ("stream", "consumers", "event")
        self.name = table
        self._version_table = version_table
        self.table = _TABLE.format(name=table)
        """Creates the table in SQLite; in PostgreSQL, use `ephemera migrate`."""
        self.pyformat = _CLAIM.format(name=table, **{name: f"%({name})s" for name in names})
        """Returns a row for the first delivery only; for drivers that take `%(name)s`, such as psycopg."""
        self.named = _CLAIM.format(name=table, **{name: f":{name}" for name in names})
        """The same for `:name`."""

    @cached_property
    def sql_schema(self) -> SqlSchema:
        """The table in PostgreSQL, for migrations; needs the extra `sql`."""
        from sqlalchemy import Column, DateTime, Text, func

        from ephemera.sql import SqlSchema

        key = [Column(name, Text, primary_key=True) for name in ("stream", "consumers", "event")]
        now = func.current_timestamp()
        handled = Column("handled", DateTime(timezone=True), nullable=False, server_default=now)
        return SqlSchema.of_table("events", self.name, *key, handled, version_table=self._version_table)

    def values(self, delivery: Delivery, *, event: str | None = None) -> dict[str, str]:
        """The parameters of the statement; the event is identified by its first id, also after a replay.

        `event` replaces that by an id of your own, the same however often the event is published. You need
        it if the publisher may publish an event twice, as from an outbox. After a replay with `again=True`
        both are new ids.
        """
        first, mark, replay = delivery.origin.partition(REPLAYED)
        named = f"{first if event is None else event}{mark}{replay}"
        return {"stream": delivery.stream, "consumers": delivery.group, "event": named}

    def is_first(self, row: object) -> bool:
        """Whether the statement returned a row: the event was not handled before."""
        return row is not None
