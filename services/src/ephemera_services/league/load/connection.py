"""One browser's connection, as lean as can be: those who play users share the machine with the service.

A library's client took more of the machine for a request than the service does, and then the load measures
itself. This one sends the bytes of a GET and reads an answer with Content-Length, which all pages have.
"""

from __future__ import annotations

from typing import Any

from gevent import socket  # type: ignore[import-untyped]

_SIZE = 65_536
_PATIENCE = 30.0  # seconds


class Connection:
    """A connection that stays open between requests, opened again when the service has closed it."""

    def __init__(self, host: str, port: int, address: str) -> None:
        self._place = (host, port)
        self._always = f"Host: {host}:{port}\r\nX-Forwarded-For: {address}\r\nAccept-Encoding: gzip\r\n"
        self._socket: Any = None

    def get(self, path: str, tag: str | None) -> tuple[int, str, bytes]:
        """Status, ETag and body of a page; a connection that was closed meanwhile is opened again, once."""
        known = "" if tag is None else f"If-None-Match: {tag}\r\n"
        request = f"GET {path} HTTP/1.1\r\n{self._always}{known}\r\n".encode("latin-1")
        kept = self._socket is not None
        try:
            return self._exchange(request)
        except ConnectionError:
            self.close()
            if not kept:
                raise
            return self._exchange(request)

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes) -> tuple[int, str, bytes]:
        if self._socket is None:
            self._socket = socket.create_connection(self._place, timeout=_PATIENCE)
        self._socket.sendall(request)
        data = self._more()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[: end + 2].lower()
        status = int(head[9:12])
        tag = _header(data[: end + 2], head, b"\r\netag: ")
        wanted = end + 4 + (0 if status == 304 else int(_header(head, head, b"\r\ncontent-length: ") or 0))
        while len(data) < wanted:
            data += self._more()
        return status, tag, data[end + 4 : wanted]

    def _more(self) -> bytes:
        data: bytes = self._socket.recv(_SIZE)
        if not data:
            raise ConnectionResetError("the service closed the connection")
        return data


def _header(text: bytes, lower: bytes, name: bytes) -> str:
    """The value of a header, out of `text`, by its name in small letters; empty when it is not there."""
    at = lower.find(name)
    return "" if at < 0 else text[at + len(name) : text.index(b"\r\n", at + len(name))].decode("latin-1")
