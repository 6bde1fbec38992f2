"""An engine for the jobs' database."""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ephemera.errors import InvalidUrl

_GIVEN_UP: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
"""A server that vanished without a word is given up after about ten seconds, not after two hours."""
_EXAMPLE = "as in postgresql://user:password@host/database"


def sql_engine(url: str) -> AsyncEngine:
    """An engine for a PostgreSQL URL, by psycopg; a connection that died is noticed before it is used."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # its text repeats the URL
        raise InvalidUrl(f"the database URL cannot be read; {_EXAMPLE}") from None
    if parsed.get_backend_name() != "postgresql":
        raise InvalidUrl(f"jobs are kept in PostgreSQL, not in {parsed.get_backend_name()}; {_EXAMPLE}")
    return create_async_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={name: value for name, value in _GIVEN_UP.items() if name not in parsed.query},
    )
