"""Whose server is this? A mark that says it, and a guard that holds a store to it.

Two servers side by side look alike, and a cache client with the wrong port writes into its neighbour's
database without a word. So a server is marked with a name (`ephemera mark --name slides-cache`), and a store
that is opened with `identity="slides-cache"` works on no other:

| what the server carries | when the store opens | when it connects again |
|---|---|---|
| this name | taken | taken |
| another name | `WrongServer` | stays down, and calls fail as `Unavailable` |
| no name | `WrongServer` | stays down; an empty database is taken and marked anew |
| a module that `modules` does not name | `WrongServer` | stays down |
| a name, and the store was given none | `WrongServer` | not asked |

The check is part of a new connection's first words, so no command can go to a wrong server after a fail-over
or a restart; modules are named in the server's own greeting, so looking at them costs nothing. A cache may
lose its mark as it may lose anything: evicted, flushed, or gone with a restart. A store that has seen it puts
it back within a minute, and by looking keeps it from being the oldest key.

A mark belongs to one database of a server, or to a whole cluster, where it is looked at only when the store
opens. Who may not read the mark, by ACL, is held by that ACL and not by this guard.
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
"""The keys that Ephemera itself keeps on a server; no catalogue may declare others that overlap them."""

SERVER_IDENTITY = RESERVED.value(
    "ephemera:identity",
    str,
    lifetime=permanent(reason="it says whose server this is, as long as it is"),
    purpose="The name of the store that this database belongs to",
    saves="writes into a neighbour's database",
    if_lost="a store that opens refuses the server until it is marked again",
)

ARRIVE = Script.load("ephemera.keyspace", "identity")
_KEEP_EVERY = 60.0  # seconds
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


async def read_identity(client: Client) -> str | None:
    """The name that a server carries."""
    name = await client.call("GET", SERVER_IDENTITY.key())
    return None if name is None else as_text(name)


async def write_identity(client: Client, name: str, *, force: bool = False) -> str | None:
    """Mark a server, over another's mark only with `force`; what it carried before, even if that stays."""
    if not _NAME.fullmatch(name):
        raise InvalidValue(
            SERVER_IDENTITY.pattern, "a name of at most 64 letters, digits and . _ -", repr(name)
        )
    only_if_absent = () if force else ("NX",)
    before = await client.call("SET", SERVER_IDENTITY.key(), name, *only_if_absent, "GET")
    return None if before is None else as_text(before)


async def check_identity(client: Client, address: str, name: str | None) -> None:
    """Raise `WrongServer` unless the server carries this name, or none if the store has none."""
    try:
        found = await read_identity(client)
    except (ConnectionFailed, ServerError) as problem:
        cannot_tell = isinstance(problem, ConnectionFailed) or problem.code == "NOPERM"
        if name is None and cannot_tell:
            return
        raise
    if found != name:
        raise WrongServer(address, name, found=found)


@asynccontextmanager
async def guarded(client: Client, address: str, name: str) -> AsyncIterator[None]:
    """Check a client's server now, whenever it connects again, and keep the mark alive meanwhile."""
    if isinstance(client, NodeClient):
        client.link.setup.append(("EVAL", ARRIVE.source, 1, SERVER_IDENTITY.key(), name))
    elif not client.up:
        raise CannotConnect(
            address,
            "a cluster that is away cannot be asked whose it is",
            "Open the store when it is up, or without identity=",
        )
    if client.up:
        await check_identity(client, address, name)
    keeper = asyncio.create_task(_keep(client, name), name="ephemera-identity")
    try:
        yield
    finally:
        keeper.cancel()
        await asyncio.wait((keeper,))


async def _keep(client: Client, name: str) -> None:
    """Put the mark back when it was evicted or flushed; who is connected has been checked."""
    while True:
        await asyncio.sleep(_KEEP_EVERY)
        with suppress(EphemeraError):
            await client.call("SET", SERVER_IDENTITY.key(), name, "NX")
