"""A minimal HTTP connection of a simulated browser: the load generator shares the machine with the service.

A library's client uses more CPU per request than the service does, and then the load test measures itself.
This one sends the bytes of a GET and reads a response with Content-Length, which all pages have.
"""

from __future__ import annotations

from typing import Any

from gevent import socket

_SIZE = 65_536
_TIMEOUT = 30.0  # seconds


class LoadConnection:
    """A keep-alive connection, reopened when the service has closed it."""

    def __init__(self, host: str, port: int, address: str) -> None:
        self._address = (host, port)
        self._headers = f"Host: {host}:{port}\r\nX-Forwarded-For: {address}\r\nAccept-Encoding: gzip\r\n"
        self._socket: Any = None

    def get(self, path: str, tag: str | None) -> tuple[int, str, bytes]:
        """Return status, ETag and body of a page; a closed connection is reopened once."""
        known = "" if tag is None else f"If-None-Match: {tag}\r\n"
        request = f"GET {path} HTTP/1.1\r\n{self._headers}{known}\r\n".encode("latin-1")
        reused = self._socket is not None
        try:
            return self._exchange(request)
        except ConnectionError:
            self.close()
            if not reused:
                raise
            return self._exchange(request)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes) -> tuple[int, str, bytes]:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=_TIMEOUT)
        self._socket.sendall(request)
        data = self._more()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[: end + 2].lower()
        status = int(head[9:12])
        tag = _header(data[: end + 2], head, b"\r\netag: ")
        length = end + 4 + (0 if status == 304 else int(_header(head, head, b"\r\ncontent-length: ") or 0))
        while len(data) < length:
            data += self._more()
        return status, tag, data[end + 4 : length]

    def _more(self) -> bytes:
        data: bytes = self._socket.recv(_SIZE)
        if not data:
            raise ConnectionResetError("the service closed the connection")
        return data


def _header(text: bytes, lower: bytes, name: bytes) -> str:
    """The value of a header in `text`, by its lower-case name; empty if it is missing."""
    at = lower.find(name)
    return "" if at < 0 else text[at + len(name) : text.index(b"\r\n", at + len(name))].decode("latin-1")
