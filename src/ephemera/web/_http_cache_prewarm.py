"""Prewarming by a request: `POST` with the token in `x-prewarm-token`, as a cron service can send it.

The token is compared in constant time, so that its letters cannot be found out one by one by how long a
refusal takes. The answer is 202 at once; the work goes on in the background, in one process at a time, and is
logged when it fails. Repeat it as often as you like: what is fresh is not loaded again.
Redis down: the answer is the same, and the log says why nothing came of it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable
from typing import Any

from ephemera.errors import EphemeraError
from ephemera.keyspace import Store
from ephemera.patterns.http_cache import BoundHttpCache, HttpCache
from ephemera.web._asgi import Receive, Scope, Send
from ephemera.web._http_cache import state_store
from ephemera.web._problems import Problem

_SHORTEST = 16  # characters of a token
_BODY = b'{"status":"prewarming"}'
_log = logging.getLogger(__name__)


class PrewarmEndpoint:
    """An ASGI application that prewarms a site for whoever has the token."""

    def __init__(
        self, site: HttpCache[Any], token: str, *, store: Callable[[Scope], Store] = state_store
    ) -> None:
        if len(token) < _SHORTEST:
            raise ValueError(
                f"the prewarm token has {len(token)} characters; use at least {_SHORTEST} random ones"
            )
        self._site = site
        self._digest = hashlib.sha256(token.encode()).digest()
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin, if the token is right."""
        if scope["method"] != "POST":
            problem = Problem(405, "Method Not Allowed", headers=[(b"allow", b"POST")])
            return await problem(scope, receive, send)
        if not self._is_right(scope):
            detail = "Send the prewarm token in the header x-prewarm-token."
            return await Problem(403, "Forbidden", detail)(scope, receive, send)
        site = self._store(scope)[self._site]
        site.run_in_background(self._run(site), f"prewarming {self._site.name}")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        return await send({"type": "http.response.body", "body": _BODY})

    def _is_right(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"x-prewarm-token"), b"")
        # Digests have one length, whatever was sent, so not even the token's length can be measured.
        return hmac.compare_digest(hashlib.sha256(given).digest(), self._digest)

    async def _run(self, site: BoundHttpCache[Any]) -> None:
        try:
            report = await site.prewarm()
            if report is not None:
                _log.info("prewarmed %s: %s", self._site.name, report)
        except EphemeraError as problem:
            _log.warning("prewarming %s has failed: %s", self._site.name, problem)
