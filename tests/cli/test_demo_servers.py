"""Which servers a demonstration takes: flags that cannot be used, and servers that hold somebody's data."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.operations.inspect._server_mark import mark_server
from ephemera_services.demo.claims import (
    MARK,
    NotForDemonstrations,
    claim_database,
    claim_given,
    claim_redis,
)
from ephemera_services.demo.flag_errors import SYSTEMS, Given, database_of
from ephemera_services.demo.screen import shown
from tests.cli.commands import ephemera


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """An empty server for one test."""
    with embedded.valkey() as running:
        yield running


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--url", "http://127.0.0.1"), "--url (or EPHEMERA_URL): the URL's scheme is not known"),
        (("--queue-url", "redis://h:99999999"), "--queue-url (or EPHEMERA_QUEUE_URL): the URL's host"),
        (("--url", "redis+cluster://127.0.0.1:7000"), "a cluster has one database"),
        (("--database-url", "mysql://x"), "--database-url (or EPHEMERA_DATABASE_URL): it must begin with"),
        (("--qdrant-url", "127.0.0.1:6333"), "--qdrant-url (or EPHEMERA_QDRANT_URL): it must begin with"),
        (("--mongodb-url", "http://x"), "--mongodb-url (or EPHEMERA_MONGODB_URL): it must begin with"),
        (("--tuor",), "No such option: --tuor"),
    ],
)
def test_a_flag_that_cannot_be_used_is_told_so(words: tuple[str, ...], told: str) -> None:
    """Wrong flags end with code 2 and name the flag and what is wrong, before anything starts."""
    outcome = ephemera("demo", *words)
    assert outcome.code == 2
    assert told in outcome.said
    assert not outcome.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--url", "redis://:s3cr3t@127.0.0.1:1"), "127.0.0.1:1: cannot connect"),
        (
            ("--database-url", "postgresql://u:s3cr3t@127.0.0.1:1/db"),
            "--database-url: PostgreSQL cannot be used",
        ),
        (("--qdrant-url", "http://127.0.0.1:1"), "--qdrant-url: no Qdrant answers there"),
    ],
)
def test_a_server_that_is_not_there_is_told_so(words: tuple[str, ...], told: str) -> None:
    """An absent server ends with code 1 and one line that says which, without a secret."""
    outcome = ephemera("demo", *words)
    assert outcome.code == 1
    assert told in outcome.err
    assert "s3cr3t" not in outcome.out + outcome.err


async def test_an_empty_server_is_marked_and_taken_again(valkey: Valkey) -> None:
    """The first demonstration marks it; the next one takes it, with what the first one left."""
    url = f"{valkey.url}/8"
    await claim_redis("--url", url)
    for system in SYSTEMS:
        assert database_of(url, system) == f"{valkey.url}/{8 + SYSTEMS.index(system)}"
    assert f"db{8 + SYSTEMS.index('scripture')}:keys=1" in str(valkey.ask("INFO", "keyspace"))
    await claim_redis("--url", url)


async def test_a_server_with_somebodys_data_is_refused(valkey: Valkey) -> None:
    """Keys without our mark, another's mark, and too few databases: refused, and nothing was written."""
    valkey.ask("SET", "somebody's", "data")
    with pytest.raises(NotForDemonstrations, match=r"database 0 of .* has keys"):
        await claim_redis("--url", valkey.url)
    await claim_redis("--url", f"{valkey.url}/1")
    valkey.ask("FLUSHALL")
    await mark_server(database_of(valkey.url, "scripture"), "graph")
    with pytest.raises(NotForDemonstrations, match="is marked as 'graph'"):
        await claim_redis("--queue-url", valkey.url)
    with pytest.raises(NotForDemonstrations, match=r"--url: .* no database 16.* the databases 14 to 18"):
        await claim_redis("--url", f"{valkey.url}/14")


def test_a_server_that_is_not_there_is_told_by_its_flag() -> None:
    """By the flag that named it, and before anything else is said: nothing had begun."""
    told = ephemera("demo", "--queue-url", "redis://127.0.0.1:1")
    assert told.code == 1
    assert told.err.startswith("ephemera: --queue-url: 127.0.0.1:1: cannot connect")
    assert told.out == ""


async def test_a_database_with_somebodys_tables_is_refused(postgres: Postgres) -> None:
    """A schema of a service without our mark is somebody's; an empty database is marked and taken again."""
    empty, used = postgres.database("demo_empty"), postgres.database("demo_used")
    with psycopg.connect(used, autocommit=True) as sql:
        sql.execute("CREATE SCHEMA identity")
    with pytest.raises(NotForDemonstrations, match="has the schema 'identity'"):
        await claim_database(used)
    await claim_database(empty)
    with psycopg.connect(empty, autocommit=True) as sql:
        sql.execute("CREATE SCHEMA identity")
        assert sql.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (MARK,)).fetchone()
    await claim_database(empty)


async def test_an_absent_mongodb_is_told_so() -> None:
    """It would otherwise be found out by feeds that are never kept."""
    absent = Given(mongodb_url="mongodb://127.0.0.1:1/?connectTimeoutMS=100")
    with pytest.raises(NotForDemonstrations, match="--mongodb-url: no MongoDB answers there"):
        await claim_given(absent)


def test_each_service_has_a_database_by_any_kind_of_url() -> None:
    """The number goes where the URL has it; options and credentials stay."""
    assert database_of("redis://h:1", "identity") == "redis://h:1/0"
    assert database_of("redis://u:p@h:1/3?timeout=1", "league") == "redis://u:p@h:1/7?timeout=1"
    assert database_of("unix:///run/sock?timeout=1&db=2", "slides") == "unix:///run/sock?timeout=1&db=3"
    assert database_of("redis+sentinel://h:1,g:2/m", "feed") == "redis+sentinel://h:1,g:2/m/3"


def test_no_password_is_shown() -> None:
    """The screen shows where a server is, and as whom it is used, but never its password."""
    assert shown("redis://:secret@h:1/3") == "redis://h:1/3"
    assert shown("postgresql://user:secret@h/db") == "postgresql://user@h/db"
    assert shown("postgresql://h/db?password=secret&user=u") == "postgresql://h/db?password=***&user=u"
    assert shown("unix:///run/sock?db=2") == "unix:///run/sock?db=2"
