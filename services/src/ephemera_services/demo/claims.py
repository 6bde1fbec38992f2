"""May the demonstration write here? It makes up users with a password that everybody knows.

So a server that the user named must be empty, or carry the demonstration's mark from an earlier time: a
variable that was meant for another command must not bring them into somebody's real data. In Redis it is the
mark that `ephemera mark` writes, in the database of scripture, which works on none with another mark; the
others work on none with any. In PostgreSQL it is a schema of this name.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ephemera.errors import ConnectionFailed, EphemeraError, ServerError
from ephemera.keyspace import read_identity, write_identity
from ephemera.wire import open_client, parse_url
from ephemera_services.demo.flag_errors import SYSTEMS, Given, database_of

MARK = "ephemera-demo"
_PATIENCE = 3  # seconds


class NotForDemonstrations(EphemeraError):
    """A server that the demonstration must not, or cannot, use."""


async def claim_given(given: Given) -> None:
    """Claim every server that the user named; `NotForDemonstrations` when one cannot or must not be used."""
    if given.qdrant_url is not None:
        await _ask_qdrant(given.qdrant_url)
    if given.mongodb_url is not None:
        await _ask_mongodb(given.mongodb_url)
    for flag, url in (("--url", given.url), ("--queue-url", given.queue_url)):
        if url is not None:
            await claim_redis(flag, url)
    if given.database_url is not None:
        await claim_database(given.database_url)


async def claim_redis(flag: str, url: str) -> None:
    """Mark a server as the demonstration's, unless it holds somebody's data."""
    try:
        await _claim_redis(flag, url)
    except (ConnectionFailed, ServerError) as problem:
        first = parse_url(url).database
        uses = f"the demonstration uses the databases {first} to {first + len(SYSTEMS) - 1} there"
        raise NotForDemonstrations(f"{flag}: {problem} ({uses})") from None


async def _claim_redis(flag: str, url: str) -> None:
    where = ",".join(map(str, parse_url(url).addresses))
    async with open_client(database_of(url, "scripture")) as marked:
        found = await read_identity(marked)
        if found == MARK:
            return
        if found is not None:
            raise NotForDemonstrations(f"{flag}: {where} is marked as {found!r}: give another server")
        for system in SYSTEMS:
            await _must_be_empty(flag, database_of(url, system), where)
        await write_identity(marked, MARK)


async def _must_be_empty(flag: str, url: str, where: str) -> None:
    async with open_client(url) as client:
        if await client.call("DBSIZE"):
            raise NotForDemonstrations(
                f"{flag}: database {parse_url(url).database} of {where} has keys, and the demonstration "
                "makes up data: give an empty server, or the first of five empty databases, as in redis://host:6379/8"
            )


async def claim_database(url: str) -> None:
    """The same for PostgreSQL."""
    import psycopg

    try:
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, connect_timeout=_PATIENCE
        ) as sql:
            query = "SELECT nspname FROM pg_namespace WHERE nspname = ANY(%s)"
            found = {row[0] async for row in await sql.execute(query, ([*SYSTEMS, MARK],))}
            if MARK in found:
                return
            if found:
                raise NotForDemonstrations(
                    f"--database-url: the database has the schema {min(found)!r}, and the "
                    "demonstration makes up data: give an empty database (createdb ephemera_demo)"
                )
            await sql.execute(f'CREATE SCHEMA "{MARK}"')
    except psycopg.Error as problem:
        told = str(problem).strip().partition("\n")[0]
        raise NotForDemonstrations(f"--database-url: PostgreSQL cannot be used: {told}") from None


async def _ask_qdrant(url: str) -> None:
    import httpx

    try:
        async with httpx.AsyncClient(timeout=_PATIENCE) as http:
            (await http.get(f"{url.rstrip('/')}/collections")).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        raise NotForDemonstrations(
            f"--qdrant-url: no Qdrant answers there ({type(problem).__name__}): is it running?"
        ) from None


async def _ask_mongodb(url: str) -> None:
    from pymongo import MongoClient
    from pymongo.errors import PyMongoError

    def ask() -> None:
        client: MongoClient[dict[str, Any]] = MongoClient(url, serverSelectionTimeoutMS=_PATIENCE * 1000)
        with client:
            client.admin.command("ping")

    try:
        await asyncio.to_thread(ask)  # its asynchronous client, closed while it tries, leaves a socket open
    except PyMongoError as problem:
        raise NotForDemonstrations(
            f"--mongodb-url: no MongoDB answers there ({type(problem).__name__}): is it running?"
        ) from None
