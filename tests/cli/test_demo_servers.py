"""Which servers the demo accepts: unusable flags, and servers that hold other data."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.operations.configuration import mark_server
from ephemera_services.demo.external_servers import (
    IDENTITY,
    SERVICES,
    ServerUrls,
    UnusableServer,
    claim_database,
    claim_redis,
    claim_servers,
    service_database,
)
from ephemera_services.demo.screen import redacted
from tests.cli.commands import ephemera


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """An empty server for one test."""
    with embedded.valkey() as running:
        yield running


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_an_unusable_flag_is_reported(arguments: tuple[str, ...], message: str) -> None:
    """An unusable flag exits with code 2 and names the flag and the problem, before anything starts."""
    outcome = ephemera("demo", *arguments)
    assert outcome.code == 2
    assert message in outcome.said
    assert not outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--url", "redis://:s3cr3t@127.0.0.1:1"), "127.0.0.1:1: cannot connect"),
        (
            ("--database-url", "postgresql://u:s3cr3t@127.0.0.1:1/db"),
            "--database-url: PostgreSQL cannot be used",
        ),
        (("--qdrant-url", "http://127.0.0.1:1"), "--qdrant-url: no Qdrant answers there"),
    ],
)
def test_an_absent_server_is_reported(arguments: tuple[str, ...], message: str) -> None:
    """An absent server exits with code 1 and one line that says which, without a secret."""
    outcome = ephemera("demo", *arguments)
    assert outcome.code == 1
    assert message in outcome.err
    assert "s3cr3t" not in outcome.out + outcome.err


async def test_an_empty_server_is_marked_and_reused(valkey: Valkey) -> None:
    """The first demo marks the server; the next one accepts it with the data that the first one left."""
    url = f"{valkey.url}/8"
    await claim_redis("--url", url)
    for service in SERVICES:
        assert service_database(url, service) == f"{valkey.url}/{8 + SERVICES.index(service)}"
    assert f"db{8 + SERVICES.index('scripture')}:keys=1" in str(valkey.ask("INFO", "keyspace"))
    await claim_redis("--url", url)


async def test_a_server_with_other_data_is_refused(valkey: Valkey) -> None:
    """Keys without the demo's mark, another mark, and too few databases are refused; nothing is written."""
    valkey.ask("SET", "other", "data")
    with pytest.raises(UnusableServer, match=r"database 0 of .* has keys"):
        await claim_redis("--url", valkey.url)
    await claim_redis("--url", f"{valkey.url}/1")
    valkey.ask("FLUSHALL")
    await mark_server(service_database(valkey.url, "scripture"), "graph")
    with pytest.raises(UnusableServer, match="is marked as 'graph'"):
        await claim_redis("--queue-url", valkey.url)
    with pytest.raises(UnusableServer, match=r"--url: .* no database 16.* databases 14 to 18"):
        await claim_redis("--url", f"{valkey.url}/14")


def test_an_absent_server_is_reported_with_its_flag() -> None:
    """The error names the flag, and nothing else is printed: nothing had started."""
    outcome = ephemera("demo", "--queue-url", "redis://127.0.0.1:1")
    assert outcome.code == 1
    assert outcome.err.startswith("ephemera: --queue-url: 127.0.0.1:1: cannot connect")
    assert outcome.out == ""


async def test_a_database_with_other_tables_is_refused(postgres: Postgres) -> None:
    """A service's schema without the demo's mark is refused; an empty database is marked and reused."""
    empty, used = postgres.database("demo_empty"), postgres.database("demo_used")
    with psycopg.connect(used, autocommit=True) as sql:
        sql.execute("CREATE SCHEMA identity")
    with pytest.raises(UnusableServer, match="has the schema 'identity'"):
        await claim_database(used)
    await claim_database(empty)
    with psycopg.connect(empty, autocommit=True) as sql:
        sql.execute("CREATE SCHEMA identity")
        assert sql.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (IDENTITY,)).fetchone()
    await claim_database(empty)


async def test_an_absent_mongodb_is_reported() -> None:
    """Otherwise feeds would silently not be stored."""
    absent = ServerUrls(mongodb_url="mongodb://127.0.0.1:1/?connectTimeoutMS=100")
    with pytest.raises(UnusableServer, match="--mongodb-url: no MongoDB answers there"):
        await claim_servers(absent)


def test_each_service_has_a_database_by_any_kind_of_url() -> None:
    """The database number goes where this kind of URL has it; options and credentials are kept."""
    assert service_database("redis://h:1", "identity") == "redis://h:1/0"
    assert service_database("redis://u:p@h:1/3?timeout=1", "league") == "redis://u:p@h:1/7?timeout=1"
    assert service_database("unix:///run/sock?timeout=1&db=2", "slides") == "unix:///run/sock?timeout=1&db=3"
    assert service_database("redis+sentinel://h:1,g:2/m", "feed") == "redis+sentinel://h:1,g:2/m/3"


def test_no_password_is_redacted() -> None:
    """Addresses and user names are shown, passwords never."""
    assert redacted("redis://:secret@h:1/3") == "redis://h:1/3"
    assert redacted("postgresql://user:secret@h/db") == "postgresql://user@h/db"
    assert redacted("postgresql://h/db?password=secret&user=u") == "postgresql://h/db?password=***&user=u"
    assert redacted("unix:///run/sock?db=2") == "unix:///run/sock?db=2"
