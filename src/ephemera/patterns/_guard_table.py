"""Tables whose one statement says whether the rest of its transaction may go on.

The statement returns a row if it may, and none otherwise. PostgreSQL and SQLite understand it, with the
parameters of any driver.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ephemera.errors import InvalidValue

if TYPE_CHECKING:  # it needs the extra `sql`
    from ephemera.sql import SqlSchema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


class GuardTable:
    """The statements of one table, which several services may share."""

    _component: ClassVar[str]  # of its schema
    _parameters: ClassVar[tuple[str, ...]]
    _create: ClassVar[str]
    _admit: ClassVar[str]

    def __init__(self, table: str, *, version_table: str | None = None) -> None:
        if not _NAME.fullmatch(table):
            raise InvalidValue("table", "a name, or schema.name", repr(table))
        self.name = table
        self._version_table = version_table
        self.table = self._create.format(name=table)
        """Creates the table in SQLite; in PostgreSQL, use `ephemera migrate`."""
        self.pyformat = self._admit.format(name=table, **{name: f"%({name})s" for name in self._parameters})
        """Returns a row, or none if it refuses; for drivers that take `%(name)s`, such as psycopg."""
        self.named = self._admit.format(name=table, **{name: f":{name}" for name in self._parameters})
        """The same for drivers that take `:name`, such as `sqlalchemy.text` and sqlite3."""

    @cached_property
    def sql_schema(self) -> SqlSchema:
        """The table in PostgreSQL, for migrations; needs the extra `sql`."""
        from ephemera.sql import SqlSchema

        return SqlSchema.of_table(
            self._component, self.name, *self._columns(), version_table=self._version_table
        )

    def _columns(self) -> list[Any]:
        """The columns for SQLAlchemy, which the statements alone do not need."""
        raise NotImplementedError
