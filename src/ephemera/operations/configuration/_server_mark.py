"""Mark a server with the name of its owner, or read the mark; `connect(identity=...)` checks it."""

from __future__ import annotations

import msgspec

from ephemera.errors import WrongServer
from ephemera.keyspace import read_identity, write_identity
from ephemera.wire import Client, as_text, open_client, parse_url

_OWN_MODULES = frozenset(("lua",))  # Valkey 9 lists its script engine


class ServerMark(msgspec.Struct, frozen=True):
    """The mark of a server, now and before."""

    address: str
    mark: str | None
    before: str | None
    modules: tuple[str, ...]


async def mark_server(url: str, name: str | None = None, *, force: bool = False) -> ServerMark:
    """Mark a server, or only read its mark when no name is given; `WrongServer` if it has another."""
    address = ",".join(map(str, parse_url(url).addresses))
    async with open_client(url) as client:
        modules = await loaded_modules(client)
        if name is None:
            found = await read_identity(client)
            return ServerMark(address, found, found, modules)
        before = await write_identity(client, name, force=force)
    if before not in (None, name) and not force:
        raise WrongServer(address, name, found=before)
    return ServerMark(address, name, before, modules)


async def loaded_modules(client: Client) -> tuple[str, ...]:
    """The names of the modules loaded on any node, without built-in ones."""
    names = {
        as_text(module[b"name"]) for node in client.nodes() for module in await node.call("MODULE", "LIST")
    }
    return tuple(sorted(names - _OWN_MODULES, key=str.lower))
