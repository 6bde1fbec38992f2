"""The servers that the user named: flags are checked and servers are claimed before anything starts.

*One database per service*, so that each can be audited by itself. A URL with the number 8 gives them 8 to 12.
A cluster has only one database, so the demo cannot use it.

*Claims.* The demo creates users with a public password. So a server that the user named must be empty, or
carry the identity of the demo from an earlier run: a variable that was meant for another command must not
bring these users into real data. In Redis it is the identity that `ephemera mark` writes, in the database of
scripture, which requires it; in PostgreSQL it is a schema of the same name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ephemera.errors import ConnectionFailed, EphemeraError, InvalidUrl, ServerError
from ephemera.keyspace import read_identity, write_identity
from ephemera.wire import open_client, parse_url

SERVICES = ("identity", "slides", "scripture", "feed", "league")
"""The services, in the order of their databases."""
IDENTITY = "ephemera-demo"
_TIMEOUT = 3  # seconds


class InvalidFlag(EphemeraError, ValueError):
    """A flag of the demo has an unusable value."""

    def __init__(self, flag: str, problem: str) -> None:
        variable = "EPHEMERA_" + flag.strip("-").upper().replace("-", "_")
        super().__init__(f"{flag} (or {variable}): {problem}")


class UnusableServer(EphemeraError):
    """A server that the demo must not, or cannot, use."""


@dataclass(frozen=True)
class ServerUrls:
    """The servers that the user named. None means an embedded server, or none for Qdrant and MongoDB."""

    url: str | None = None
    queue_url: str | None = None
    database_url: str | None = None
    qdrant_url: str | None = None
    mongodb_url: str | None = None

    def check(self) -> None:
        """Raise `InvalidFlag` for the first URL that is unusable whatever runs there."""
        for flag, url in (("--url", self.url), ("--queue-url", self.queue_url)):
            if url is not None:
                _check_redis(flag, url)
        for flag, url, schemes in (
            ("--database-url", self.database_url, ("postgresql://", "postgres://")),
            ("--qdrant-url", self.qdrant_url, ("http://", "https://")),
            ("--mongodb-url", self.mongodb_url, ("mongodb://", "mongodb+srv://")),
        ):
            if url is not None and not url.startswith(schemes):
                raise InvalidFlag(flag, f"it must begin with {' or '.join(schemes)}")


def _check_redis(flag: str, url: str) -> None:
    try:
        target = parse_url(url)
    except InvalidUrl as problem:
        raise InvalidFlag(flag, str(problem)) from None
    if target.kind == "cluster":
        raise InvalidFlag(
            flag,
            "a cluster has one database, and each of the demo's services needs its own: "
            "use a single server or Sentinel",
        )


def service_database(url: str, service: str) -> str:
    """Return the URL of a service's own database on a server: the URL's number, or one of the next four."""
    target = parse_url(url)
    number = target.database + SERVICES.index(service)
    base, _, options = url.partition("?")
    if base.startswith("unix://"):
        others = [(name, value) for name, value in parse_qsl(options) if name != "db"]
        return f"{base}?{urlencode([*others, ('db', str(number))])}"
    scheme, _, rest = base.partition("://")
    path = [rest.partition("/")[0], *([target.master] if target.master else []), str(number)]
    return f"{scheme}://{'/'.join(path)}" + (f"?{options}" if options else "")


async def claim_servers(urls: ServerUrls) -> None:
    """Claim every server that the user named, or raise `UnusableServer`."""
    if urls.qdrant_url is not None:
        await _ping_qdrant(urls.qdrant_url)
    if urls.mongodb_url is not None:
        await _ping_mongodb(urls.mongodb_url)
    for flag, url in (("--url", urls.url), ("--queue-url", urls.queue_url)):
        if url is not None:
            await claim_redis(flag, url)
    if urls.database_url is not None:
        await claim_database(urls.database_url)


async def claim_redis(flag: str, url: str) -> None:
    """Mark a Redis server as the demo's, unless it holds other data."""
    try:
        await _claim_redis(flag, url)
    except (ConnectionFailed, ServerError) as problem:
        first = parse_url(url).database
        used = f"the demo uses databases {first} to {first + len(SERVICES) - 1} of this server"
        raise UnusableServer(f"{flag}: {problem} ({used})") from None


async def _claim_redis(flag: str, url: str) -> None:
    address = ",".join(map(str, parse_url(url).addresses))
    async with open_client(service_database(url, "scripture")) as client:
        found = await read_identity(client)
        if found == IDENTITY:
            return
        if found is not None:
            raise UnusableServer(f"{flag}: {address} is marked as {found!r}: use another server")
        for service in SERVICES:
            await _require_empty(flag, service_database(url, service), address)
        await write_identity(client, IDENTITY)


async def _require_empty(flag: str, url: str, address: str) -> None:
    async with open_client(url) as client:
        if await client.call("DBSIZE"):
            raise UnusableServer(
                f"{flag}: database {parse_url(url).database} of {address} has keys, and the demo creates "
                "data: use an empty server, or the first of five empty databases, as in redis://host:6379/8"
            )


async def claim_database(url: str) -> None:
    """Mark a PostgreSQL database as the demo's, unless it has a service's schema."""
    import psycopg

    try:
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, connect_timeout=_TIMEOUT
        ) as sql:
            query = "SELECT nspname FROM pg_namespace WHERE nspname = ANY(%s)"
            found = {row[0] async for row in await sql.execute(query, ([*SERVICES, IDENTITY],))}
            if IDENTITY in found:
                return
            if found:
                raise UnusableServer(
                    f"--database-url: the database has the schema {min(found)!r}, and the demo creates "
                    "data: use an empty database (createdb ephemera_demo)"
                )
            await sql.execute(f'CREATE SCHEMA "{IDENTITY}"')
    except psycopg.Error as problem:
        reason = str(problem).strip().partition("\n")[0]
        raise UnusableServer(f"--database-url: PostgreSQL cannot be used: {reason}") from None


async def _ping_qdrant(url: str) -> None:
    import httpx

    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT) as http:
            (await http.get(f"{url.rstrip('/')}/collections")).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        raise UnusableServer(
            f"--qdrant-url: no Qdrant answers there ({type(problem).__name__}): is it running?"
        ) from None


async def _ping_mongodb(url: str) -> None:
    from pymongo import MongoClient
    from pymongo.errors import PyMongoError

    def ping() -> None:
        client: MongoClient[dict[str, Any]] = MongoClient(url, serverSelectionTimeoutMS=_TIMEOUT * 1000)
        with client:
            client.admin.command("ping")

    try:
        await asyncio.to_thread(ping)  # the asynchronous client, closed while connecting, leaks a socket
    except PyMongoError as problem:
        raise UnusableServer(
            f"--mongodb-url: no MongoDB answers there ({type(problem).__name__}): is it running?"
        ) from None
