"""Marking a server, and asking whose it is; see `connect(identity=...)`."""

from __future__ import annotations

import msgspec

from ephemera.errors import WrongServer
from ephemera.keyspace import read_identity, write_identity
from ephemera.wire import Client, as_text, open_client, parse_url

_OWN_MODULES = frozenset(("lua",))  # Valkey 9 lists its own script engine


class Marking(msgspec.Struct, frozen=True):
    """What a server carries now, and what it carried before."""

    address: str
    mark: str | None
    before: str | None
    modules: tuple[str, ...]


async def mark_server(url: str, name: str | None = None, *, force: bool = False) -> Marking:
    """Mark a server, or only look when there is no name; `WrongServer` when it is another's."""
    address = ",".join(map(str, parse_url(url).addresses))
    async with open_client(url) as client:
        modules = await modules_of(client)
        if name is None:
            found = await read_identity(client)
            return Marking(address, found, found, modules)
        before = await write_identity(client, name, force=force)
    if before not in (None, name) and not force:
        raise WrongServer(address, name, found=before)
    return Marking(address, name, before, modules)


async def modules_of(client: Client) -> tuple[str, ...]:
    """The names of the modules of all nodes, without the server's own."""
    names = {
        as_text(module[b"name"]) for node in client.nodes() for module in await node.call("MODULE", "LIST")
    }
    return tuple(sorted(names - _OWN_MODULES, key=str.lower))
