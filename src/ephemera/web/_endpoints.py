"""ASGI applications for operators: health, metrics, and prewarming a site.

    app.mount("/healthz", HealthEndpoint())
    app.mount("/metrics", MetricsEndpoint(lambda scope: scope["state"]["metrics"]))

*Health* is the result of `ephemera doctor` as a JSON document: 200 when all is well or there is only advice,
503 when there is a problem, so a load balancer needs to read nothing else. A result is reused for some
seconds, and concurrent requests share one check. Mount it where only operators reach it, or give
`details=False`, which returns only the status.

*Metrics* are rendered from memory, even while every server is down, in the format that the scraper asks for.
They name patterns, rules and addresses: mount it where only operators reach it.

*Prewarming* takes a POST with the token in `x-prewarm-token`, as a cron service can send it. The token is
compared in constant time. The response is 202 at once; the work runs in the background, in one process at a
time, and a failure is logged. Repeat it as often as you like: fresh pages are not loaded again. When Redis is
down the response is the same, and the log has the error.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from time import monotonic
from typing import Any

import msgspec

from ephemera.keyspace import Role, Store
from ephemera.operations.health import Health, check_client, worst_status
from ephemera.operations.metrics import StoreMetrics
from ephemera.patterns.http_cache import HttpCache
from ephemera.web._asgi import Problem, Receive, Scope, Send, send_response
from ephemera.web._http_cache import store_from_state

_REUSED_FOR = 5.0  # seconds
_PROBES = 20
_ROLES: tuple[Role, ...] = ("cache", "queue")
_METHODS = ("GET", "HEAD")
_SHORTEST_TOKEN = 16  # characters
_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")


class HealthEndpoint:
    """Responds with the health of a store's servers; `store` finds the store of a scope.

    With `details=False` it returns only the status.
    """

    def __init__(self, store: Callable[[Scope], Store] = store_from_state, *, details: bool = True) -> None:
        self._store = store
        self._details = details
        self._checking: asyncio.Task[Health] | None = None
        self._checked_at = float("-inf")

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Respond to a request."""
        health = await self._health(self._store(scope))
        document = msgspec.to_builtins(health) if self._details else {"status": health.status}
        status = 503 if health.status == "problem" else 200
        body = msgspec.json.encode(document)
        await send_response(send, status, (_JSON, _NO_STORE), body, head=scope["method"] == "HEAD")

    async def _health(self, store: Store) -> Health:
        task = self._checking
        if task is None or (task.done() and monotonic() - self._checked_at > _REUSED_FOR):
            task = self._checking = asyncio.create_task(_check_roles(store))
            task.add_done_callback(self._done)
        # A request that is cancelled must not cancel the check for the others.
        return await asyncio.shield(task)

    def _done(self, _: asyncio.Task[Health]) -> None:
        self._checked_at = monotonic()


async def _check_roles(store: Store) -> Health:
    """Check the servers of both roles, once where they share one."""
    cache, queue = (store.client(role) for role in _ROLES)
    if cache is queue:
        return await check_client(cache, store.catalogues, probes=_PROBES)
    found = await asyncio.gather(
        *(check_client(store.client(role), store.catalogues, role=role, probes=_PROBES) for role in _ROLES)
    )
    return Health(
        status=worst_status(health.status for health in found),
        servers=[server for health in found for server in health.servers],
    )


class MetricsEndpoint:
    """Responds with a store's metrics; `metrics` finds them for a scope. Needs the extra `metrics`."""

    def __init__(self, metrics: Callable[[Scope], StoreMetrics]) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Respond to a request."""
        if scope["method"] not in _METHODS:
            return await send_response(send, 405, [(b"allow", ", ".join(_METHODS).encode())], b"")
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        # Rendering takes 10 us per line, too long for the loop when there are a thousand.
        metrics = self._metrics(scope)
        body, content_type = await asyncio.to_thread(metrics.render, accept.decode("latin-1"))
        headers = ((b"content-type", content_type.encode()), _NO_STORE)
        return await send_response(send, 200, headers, body, head=scope["method"] == "HEAD")


class PrewarmEndpoint:
    """Prewarms a site for requests that have the token.

    `store` finds the store of a scope.
    """

    def __init__(
        self, site: HttpCache[Any], token: str, *, store: Callable[[Scope], Store] = store_from_state
    ) -> None:
        if len(token) < _SHORTEST_TOKEN:
            raise ValueError(
                f"the prewarm token has {len(token)} characters; use at least {_SHORTEST_TOKEN} random ones"
            )
        self._site = site
        self._digest = hashlib.sha256(token.encode()).digest()
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start prewarming if the token is right."""
        if scope["method"] != "POST":
            problem = Problem(405, "Method Not Allowed", headers=[(b"allow", b"POST")])
            return await problem(scope, receive, send)
        if not self._is_authorized(scope):
            detail = "Send the prewarm token in the header x-prewarm-token."
            return await Problem(403, "Forbidden", detail)(scope, receive, send)
        self._store(scope)[self._site].prewarm_in_background()
        return await send_response(send, 202, (_JSON,), b'{"status":"prewarming"}')

    def _is_authorized(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"x-prewarm-token"), b"")
        # Digests have one length, so not even the token's length can be measured.
        return hmac.compare_digest(hashlib.sha256(given).digest(), self._digest)
