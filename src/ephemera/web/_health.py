"""`/healthz` of a service: what `ephemera doctor` would say, cheap enough to be asked every second.

    app.mount("/healthz", HealthEndpoint(lambda scope: scope["state"]["store"]))

The answer is a JSON document: 200 when all is well or only advice is due, 503 when there is a problem, so
that a load balancer needs to read nothing else. A check-up is kept for some seconds, and of many who ask at
once one asks the servers. Figures and rules are for those who operate the service: mount it where they
alone come, or give `details=False`, which says the status and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

import msgspec

from ephemera.keyspace import Role, Store
from ephemera.operations.health import Health, check_client, worst_status
from ephemera.web._asgi import Receive, Scope, Send

_KEPT = 5.0  # seconds
_PROBES = 20
_ROLES: tuple[Role, ...] = ("cache", "queue")


class HealthEndpoint:
    """Answers with the health of a store's servers; `store` finds the store for a scope."""

    def __init__(self, store: Callable[[Scope], Store], *, details: bool = True) -> None:
        self._store = store
        self._details = details
        self._examining: asyncio.Task[Health] | None = None
        self._examined_at = float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer a request."""
        health = await self._health(self._store(scope))
        said = msgspec.to_builtins(health) if self._details else {"status": health.status}
        body = msgspec.json.encode(said)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        status = 503 if health.status == "problem" else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _health(self, store: Store) -> Health:
        task = self._examining
        if task is None or (task.done() and monotonic() - self._examined_at > _KEPT):
            task = self._examining = asyncio.create_task(_both_roles(store))
            task.add_done_callback(self._note)
        # A caller who goes away must not take the answer from the others.
        return await asyncio.shield(task)

    def _note(self, _: asyncio.Task[Health]) -> None:
        self._examined_at = monotonic()


async def _both_roles(store: Store) -> Health:
    """The servers of both roles, or of both at once where they share one."""
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
