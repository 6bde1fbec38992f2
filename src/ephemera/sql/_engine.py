"""An engine for a PostgreSQL URL as hosts write it, with timeouts that notice a server that is gone."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ephemera.errors import InvalidUrl
from ephemera.sql._shrinking_pool import ShrinkingPool

_EXAMPLE = "as in postgresql://user:password@host/database"
_TIMEOUTS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
"""A server that vanished without closing its connections is given up after ten seconds, not two hours."""


def sql_engine(url: str, **pool: Any) -> AsyncEngine:
    """An engine for a PostgreSQL URL, by psycopg; each connection is tested before it is used.

    Connections that were not used for half a minute are closed (`ephemera.sql.ShrinkingPool`).

    `pool` takes further arguments of SQLAlchemy's `create_async_engine`, as in `pool_size=20`.

    The URL may begin with `postgresql://` or, as many hosts write it, `postgres://`.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # its text repeats the URL
        raise InvalidUrl(f"the database URL cannot be read; {_EXAMPLE}") from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise InvalidUrl(f"the tables are in PostgreSQL, not in {parsed.get_backend_name()}; {_EXAMPLE}")
    return create_async_engine(
        parsed.set(drivername="postgresql+psycopg"),
        **{"pool_pre_ping": True, "poolclass": ShrinkingPool, **pool},
        hide_parameters=True,
        connect_args={name: value for name, value in _TIMEOUTS.items() if name not in parsed.query},
    )
