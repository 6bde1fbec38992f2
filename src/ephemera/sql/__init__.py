"""The library's own SQL tables: created, upgraded and checked by migrations that are part of the wheel.

    await migrate(engine, JOBS, ONCE)        # as: ephemera migrate up --catalogue shop --database-url URL

*Tables.* A declaration with tables (`Jobs`, `Planner`, `DeferredCounters`, `DeferredRecords`, `OnceGuard`,
`FenceGuard`) has a `sql_schema`: the name of its component, its own name, its `Table` objects, and the
revisions that create and change them. Several declarations of a component live in one database, each under
its own name; those of write-behind share their tables, unless a `SinkTables` says otherwise.

*Versions.* The table `ephemera_schema` is beside the tables, in the same PostgreSQL schema. It has a row for
each declaration: the version of its tables, and the oldest version whose code works with them. The metadata
of the tables may give it another name: `MetaData(info={"ephemera_version_table": "shop_versions"})`.

*Atomicity.* `migrate` upgrades everything in one transaction, under an advisory lock of the database. Any
number of processes may call it at once: one does the work, and the others find it done.

*Checks.* The first use of the tables in a process compares their version with the code's and raises
`SchemaMismatch`, which names the command to run, if they are missing, older, or changed by a release that
excludes this code. A newer version that older code can use is accepted, so releases run side by side during a
rolling deploy.

*Your own Alembic.* Pass `include_object` to `context.configure` in `env.py`, and autogenerate leaves these
tables alone, whether or not they are in your metadata.

*Connections.* `sql_engine(url)` makes an engine for `postgresql://` and `postgres://`, with timeouts and a
`ShrinkingPool`, which closes the connections that were not used for a while.

Needs the extra `sql`: SQLAlchemy 2, psycopg 3 and Alembic. *When the database is down*, calls raise what
SQLAlchemy raises, and nothing was changed.
"""

from importlib.util import find_spec

from ephemera.errors import MissingExtra

if _missing := [name for name in ("sqlalchemy", "psycopg", "alembic") if find_spec(name) is None]:
    raise MissingExtra(f"SQL tables need {_missing[0]}", "sql", _missing[0])

from ephemera.sql._checked_engine import CheckedEngine
from ephemera.sql._engine import sql_engine
from ephemera.sql._schema import (
    HasTables,
    Revision,
    SqlDeclaration,
    SqlSchema,
    create_declared_tables,
    include_object,
    schemas_of,
)
from ephemera.sql._shrinking_pool import ShrinkingPool
from ephemera.sql._upgrade import migrate, upgrade, upgrade_sql
from ephemera.sql._versions import SchemaVersion, verify, verify_at_start, versions

__all__ = [
    "CheckedEngine",
    "HasTables",
    "Revision",
    "SchemaVersion",
    "ShrinkingPool",
    "SqlDeclaration",
    "SqlSchema",
    "create_declared_tables",
    "include_object",
    "migrate",
    "schemas_of",
    "sql_engine",
    "upgrade",
    "upgrade_sql",
    "verify",
    "verify_at_start",
    "versions",
]
