"""A language model for the slides: OpenAI's chat completions, slow enough to be interrupted."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

TOKENS = 100
"""What an answer takes."""
_HOOK = "/hook"


class Model:
    """Answers each request after `seconds`, and receives webhooks; a context manager."""

    def __init__(self, seconds: float) -> None:
        self.received = received = set[str]()
        """The ids of deliveries."""

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                """Answer one request."""
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == _HOOK:
                    received.add(self.headers["webhook-id"])
                    self.send_response(204)
                    self.end_headers()
                    return
                time.sleep(seconds)
                content = json.dumps(_answer(body["messages"][-1]["content"]))
                reply = {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": TOKENS}}
                data = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A worker that was killed does not wait for its answer."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self.hook = f"http://127.0.0.1:{self._server.server_port}{_HOOK}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="model", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(prompt: str) -> dict[str, Any]:
    outline = re.match(r"Write the outline of a presentation of (\d+) slides on: (.*)", prompt)
    if outline is not None:
        titles = [f"{outline[2]}, part {number}" for number in range(1, int(outline[1]) + 1)]
        return {"title": outline[2], "slides": titles}
    return {"bullets": ["A first point", "A second one"], "notes": "Say it slowly."}
