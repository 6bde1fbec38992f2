"""`GET /metrics` of a service, for Prometheus: closed until EPHEMERA_METRICS_TOKEN says who may read it.

Metrics tell patterns, rules, addresses and how much is going on: nothing for strangers. Most services answer
strangers, often through a proxy on the same machine, so neither a path nor an address keeps them out. Without
a token there is no such route; with one, Prometheus sends it (`authorization: {credentials_file: ...}`), and
it is compared in constant time. An answer comes from memory, also while every server is away.

The registry is `Resources.registry`: a service adds its own metrics to it, those of the store are added here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ephemera.operations.metrics import StoreMetrics
from ephemera_services.problem_answers import UNTOUCHED, unauthorized
from ephemera_services.settings import InvalidSettings, SystemSettings

if TYPE_CHECKING:
    from ephemera_services.application import Resources

_SHORTEST = 16  # characters of a token
_BEARER = HTTPBearer(scheme_name="MetricsToken", auto_error=False)
_FORMS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}
}


def collected(settings: SystemSettings, resources: Resources) -> StoreMetrics | None:
    """The metrics of a service's store until it is closed, if somebody may read them."""
    if settings.metrics_token is None:
        return None
    return StoreMetrics(resources.store, registry=resources.registry)


def routes(settings: SystemSettings) -> APIRouter:
    """The route, where there is a token."""
    router = APIRouter(tags=["metrics"])
    if settings.metrics_token is None:
        return router
    token = settings.metrics_token.reveal()
    if len(token) < _SHORTEST:
        problem = f"it has {len(token)} characters; use at least {_SHORTEST} random ones"
        raise InvalidSettings([f"EPHEMERA_METRICS_TOKEN: {problem}"])
    right = hashlib.sha256(token.encode()).digest()

    @router.get("/metrics", response_class=Response, responses=_FORMS, openapi_extra=UNTOUCHED)
    async def metrics(
        request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
    ) -> Response:
        """This process's metrics, for Prometheus."""
        if sent is None:
            raise unauthorized("Send the metrics token: Authorization: Bearer ...", token=False)
        # Digests have one length, whatever was sent, so not even the token's length can be measured.
        given = hashlib.sha256(sent.credentials.encode("utf-8", "replace")).digest()
        if not hmac.compare_digest(given, right):
            raise unauthorized("The metrics token is not the right one.")
        found: StoreMetrics = request.app.state.metrics
        # Prometheus' text takes 10 us a line to write, too long for the loop when there are a thousand.
        text, content_type = await asyncio.to_thread(found.exposed, request.headers.get("accept", ""))
        return Response(text, media_type=content_type, headers={"cache-control": "no-store"})

    return router
