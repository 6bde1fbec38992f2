"""One synchronous command over a new connection.

It is used to check whether embedded servers are ready, and to form clusters. For anything else use
`ephemera.connect`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import cast

import hiredis

from ephemera.errors import ServerError

Address = tuple[str, int] | str

# hiredis annotates its argument as a tuple of one.
_pack = cast("Callable[[tuple[str | int, ...]], bytes]", hiredis.pack_command)


def send_command(
    address: Address, *words: str | int, password: str | None = None, timeout: float = 2.0
) -> object:
    """Return the server's reply; ServerError for an error reply, OSError when there is none."""
    with open_socket(address, timeout) as connection:
        reader = hiredis.Reader(encoding="utf-8", errors="replace")
        if password:
            exchange(connection, reader, "AUTH", password)
        return exchange(connection, reader, *words)


def open_socket(address: Address, timeout: float) -> socket.socket:
    """Connect to a port, or to a unix socket's path."""
    if not isinstance(address, str):
        return socket.create_connection(address, timeout)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def exchange(connection: socket.socket, reader: hiredis.Reader, *words: str | int) -> object:
    """Send one command and read one whole reply."""
    connection.sendall(_pack(words))
    while (reply := reader.gets()) is False:
        data = connection.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        reader.feed(data)
    if isinstance(reply, hiredis.ReplyError):
        raise ServerError(str(reply))
    return reply
