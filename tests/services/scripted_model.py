"""A small endpoint that speaks OpenAI's chat completions, with scripted responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """A response of the endpoint."""

    status: int
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


class Endpoint:
    """A server with scripted responses that records its requests."""

    def __init__(self, protocol: str = "HTTP/1.0") -> None:
        self.replies: list[Reply] = []
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        """The path, headers and body of each request."""
        self.clients: list[tuple[str, int]] = []
        """The client of each request, by its connection."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = protocol

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                endpoint.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                endpoint.clients.append(self.client_address)
                reply = endpoint.replies.pop(0)
                data = json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def prompt(self, number: int) -> str:
        """The last message of a request."""
        return str(json.loads(self.seen[number][2])["messages"][-1]["content"])

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def says(content: str, tokens: int = 7) -> Reply:
    """A successful response with this text."""
    return Reply(200, {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": tokens}})
