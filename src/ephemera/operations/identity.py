"""Marking a server, and asking whose it is; `ephemera.keyspace.identity` says what a mark is good for."""

from __future__ import annotations

import msgspec

from ephemera.errors import WrongServer
from ephemera.keyspace.identity import modules_of, read_mark, write_mark
from ephemera.wire import open_client
from ephemera.wire.url import parse


class Marking(msgspec.Struct, frozen=True):
    """What a server carries now, and what it carried before."""

    address: str
    mark: str | None
    before: str | None
    modules: tuple[str, ...]


async def mark_server(url: str, name: str | None = None, *, force: bool = False) -> Marking:
    """Mark a server, or only look when there is no name; `WrongServer` when it is another's."""
    address = ",".join(map(str, parse(url).addresses))
    async with open_client(url) as client:
        modules = await modules_of(client)
        if name is None:
            found = await read_mark(client)
            return Marking(address, found, found, modules)
        before = await write_mark(client, name, force=force)
    if before not in (None, name) and not force:
        raise WrongServer(address, name, found=before)
    return Marking(address, name, before, modules)
