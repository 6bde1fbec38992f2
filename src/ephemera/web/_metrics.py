"""`/metrics` of a service, for Prometheus to scrape.

    app.mount("/metrics", MetricsEndpoint(lambda scope: scope["state"]["metrics"]))

It answers from memory, also while every server is away, in the format that the scraper asks for. It tells
patterns, rules and addresses to whoever may ask: mount it where operators alone come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ephemera.operations.metrics import StoreMetrics
from ephemera.web._asgi import Receive, Scope, Send

_METHODS = ("GET", "HEAD")


class MetricsEndpoint:
    """Answers with a store's metrics; `metrics` finds them for a scope."""

    def __init__(self, metrics: Callable[[Scope], StoreMetrics]) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer a request."""
        if scope["method"] not in _METHODS:
            headers = [(b"allow", ", ".join(_METHODS).encode()), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 405, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        # Prometheus' text takes 10 us a line to write, too long for the loop when there are a thousand.
        metrics = self._metrics(scope)
        body, content_type = await asyncio.to_thread(metrics.render, accept.decode("latin-1"))
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
