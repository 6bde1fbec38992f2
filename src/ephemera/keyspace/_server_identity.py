"""The identity of a server: a mark with its name, and a guard that connects a store to no other server.

Two servers side by side look alike, and a client with the wrong port writes into another service's database
without an error. So a server is marked with a name (`ephemera mark --name slides-cache`), and a store opened
with `identity="slides-cache"` works on no other:

| the server has | when the store opens | when it reconnects |
|---|---|---|
| this name | accepted | accepted |
| another name | `WrongServer` | stays down; calls raise `Unavailable` |
| no name | `WrongServer` | stays down; an empty database is accepted and marked again |
| a module that `modules` does not name | `WrongServer` | stays down |
| a name, and the store was given none | `WrongServer` | not checked |

The check is part of the handshake of every new connection, so no command can reach a wrong server after a
fail-over or a restart. Modules are named in the server's own greeting, so checking them costs nothing. A
cache may lose its mark as it may lose anything: evicted, flushed, or gone with a restart. A store that has
seen it restores it within a minute, and by reading it keeps it from being the least recently used key.

A mark belongs to one database of a server, or to a whole cluster, where it is checked only when the store
opens. A client whose ACL does not let it read the mark is limited by that ACL, not by this guard.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ephemera.errors import (
    CannotConnect,
    ConnectionFailed,
    EphemeraError,
    InvalidValue,
    ServerError,
    WrongServer,
)
from ephemera.keyspace._catalogue import Catalogue
from ephemera.keyspace._lifetime import permanent
from ephemera.wire import Client, NodeClient, Script, as_text

RESERVED = Catalogue("ephemera.reserved")
"""The keys that Ephemera itself stores on a server; no catalogue may overlap them."""

SERVER_IDENTITY = RESERVED.value(
    "ephemera:identity",
    str,
    lifetime=permanent(reason="it names the service that the server belongs to"),
    purpose="The name of the store that this database belongs to",
    saves="writes into another service's database",
    if_lost="a store that opens refuses the server until it is marked again",
)
"""The key that holds the name of a server."""

CHECK_IDENTITY = Script.load("ephemera.keyspace", "identity")
_RESTORE_EVERY = 60.0  # seconds
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


async def read_identity(client: Client) -> str | None:
    """The name that a server is marked with, or None."""
    name = await client.call("GET", SERVER_IDENTITY.key())
    return None if name is None else as_text(name)


async def write_identity(client: Client, name: str, *, force: bool = False) -> str | None:
    """Mark a server; replaces another mark only with `force`. Returns the previous name, if any."""
    if not _NAME.fullmatch(name):
        raise InvalidValue(
            SERVER_IDENTITY.pattern, "a name of at most 64 letters, digits and . _ -", repr(name)
        )
    only_if_absent = () if force else ("NX",)
    before = await client.call("SET", SERVER_IDENTITY.key(), name, *only_if_absent, "GET")
    return None if before is None else as_text(before)


async def check_identity(client: Client, address: str, name: str | None) -> None:
    """Raise `WrongServer` unless the server has this name, or none if the store has none."""
    try:
        found = await read_identity(client)
    except (ConnectionFailed, ServerError) as problem:
        may_not_read = isinstance(problem, ConnectionFailed) or problem.code == "NOPERM"
        if name is None and may_not_read:
            return
        raise
    if found != name:
        raise WrongServer(address, name, found=found)


@asynccontextmanager
async def guarded(client: Client, address: str, name: str) -> AsyncIterator[None]:
    """Check a client's server now and at each reconnection, and restore the mark while it is connected."""
    if isinstance(client, NodeClient):
        client.link.setup.append(("EVAL", CHECK_IDENTITY.source, 1, SERVER_IDENTITY.key(), name))
    elif not client.up:
        raise CannotConnect(
            address,
            "a cluster that is down cannot be identified",
            "Open the store when it is up, or without identity=",
        )
    if client.up:
        await check_identity(client, address, name)
    restorer = asyncio.create_task(_restore_mark(client, name), name="ephemera-identity")
    try:
        yield
    finally:
        restorer.cancel()
        await asyncio.wait((restorer,))


async def _restore_mark(client: Client, name: str) -> None:
    """Restore the mark when it was evicted or flushed; a connected server has been checked."""
    while True:
        await asyncio.sleep(_RESTORE_EVERY)
        with suppress(EphemeraError):
            await client.call("SET", SERVER_IDENTITY.key(), name, "NX")
