"""USE5: a database URL may begin with `postgres://`, as most hosts write it."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from ephemera.embedded import Postgres
from ephemera.errors import InvalidUrl
from ephemera.sql import sql_engine


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
async def test_use5_every_spelling_of_postgresql_is_accepted(postgres: Postgres, scheme: str) -> None:
    """The driver is ours, whatever the URL says."""
    engine = sql_engine(f"{scheme}://" + postgres.database("test_use5").partition("://")[2])
    try:
        async with engine.connect() as sql:
            assert (await sql.execute(text("SELECT 5"))).scalar_one() == 5
    finally:
        await engine.dispose()


def test_use5_other_databases_are_refused() -> None:
    """The error names what was given, without the password."""
    with pytest.raises(InvalidUrl, match="not in mysql; as in postgresql://") as raised:
        sql_engine("mysql://root:secret@host/shop")
    assert "secret" not in str(raised.value)
