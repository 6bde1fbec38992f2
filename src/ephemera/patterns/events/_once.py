"""The SQL side of an event: a table of what was handled, so that an event delivered twice takes effect once.

    ONCE = OnceGuard()
    await connection.execute(ONCE.table)                                  # once, with the other tables

    async def register(event: UserRegistered, delivery: Delivery) -> None:
        async with pool.connection() as sql, sql.transaction():
            cursor = await sql.execute(ONCE.pyformat, ONCE.values(delivery))
            if ONCE.is_first(await cursor.fetchone()):
                ...                                                        # writes of the same transaction

The row and the effect commit together or not at all. Of two deliveries at once, the second waits for the
first one's commit and then finds its row; after a rollback it is the first itself. PostgreSQL and SQLite
understand the statement; `pyformat` is for psycopg, `named` for `sqlalchemy.text` and sqlite3. Rows may go
when their event cannot come again, a month later say: `DELETE ... WHERE handled < ...`.
"""

from __future__ import annotations

import re

from ephemera.errors import InvalidValue
from ephemera.patterns.events._entries import Delivery

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
    """The statements of one table of handled events; several streams and groups share it."""

    def __init__(self, table: str = "handled_events") -> None:
        if not _NAME.fullmatch(table):
            raise InvalidValue("table", "a name, or schema.name", repr(table))
        names = ("stream", "consumers", "event")
        self.table = _TABLE.format(name=table)
        """Creates the table if it is not there."""
        self.pyformat = _CLAIM.format(name=table, **{name: f"%({name})s" for name in names})
        """Gives a row to the first, and none later; for drivers that take `%(name)s`, as psycopg does."""
        self.named = _CLAIM.format(name=table, **{name: f":{name}" for name in names})
        """The same for `:name`."""

    def values(self, delivery: Delivery, *, event: str | None = None) -> dict[str, str]:
        """What the statement takes: the event by its first id, so that a replay is no other event.

        `event` names it in place of that: an id of your own, the same however often it is published. A
        publisher that repeats what was not answered needs it, such as one that publishes from an outbox.
        """
        named = delivery.origin if event is None else event
        return {"stream": delivery.stream, "consumers": delivery.group, "event": named}

    def is_first(self, row: object) -> bool:
        """Whether the statement gave a row, so that the event was not handled before."""
        return row is not None
