"""Access to feed: a bearer token, the same over HTTP and gRPC.

Feed is a service for services: its clients are programs, and each may read and write every user's feed.
Without `EPHEMERA_FEED_TOKENS` it starts only in development, where only this machine reaches it.
"""

from __future__ import annotations

from typing import Annotated, Any

import grpc
from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ephemera.web import LOOPBACK_HOSTS
from ephemera_services.feed.settings import Settings
from ephemera_services.runtime import BearerTokens, InvalidSettings, unauthorized

_BEARER = HTTPBearer(scheme_name="FeedToken", auto_error=False)


def client_tokens(settings: Settings) -> BearerTokens | None:
    """The tokens of clients; None in development without tokens."""
    if settings.tokens is not None:
        return BearerTokens("EPHEMERA_FEED_TOKENS", settings.tokens)
    if not settings.development:
        needed = "must be set: 16 or more random characters, which clients send as a bearer token"
        raise InvalidSettings(
            [f"EPHEMERA_FEED_TOKENS {needed}; or EPHEMERA_DEVELOPMENT=true on your machine"]
        )
    if settings.grpc_address.rpartition(":")[0] not in LOOPBACK_HOSTS:
        raise InvalidSettings(["EPHEMERA_FEED_GRPC_ADDRESS: without EPHEMERA_FEED_TOKENS use loopback"])
    return None


async def authorize(
    request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
) -> None:
    """A dependency: refuse a request without a token."""
    tokens: BearerTokens | None = request.app.state.tokens
    if tokens is None:
        return
    if sent is None:
        raise unauthorized("Send a token of feed: Authorization: Bearer ...", token=False)
    if not tokens.accepts(sent.credentials):
        raise unauthorized("The token is wrong.")


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses gRPC calls without a token before anything of them is decoded, even of unknown methods."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens
        self._refusal = grpc.unary_unary_rpc_method_handler(_refuse)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Let a call with a token pass."""
        sent = [value for name, value in details.invocation_metadata or () if name == "authorization"]
        if len(sent) == 1 and isinstance(sent[0], str) and self._tokens.accepts_header(sent[0]):
            return await continuation(details)
        return self._refusal


async def _refuse(_: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "send a token of feed in the metadata: authorization: Bearer ..."
    )
