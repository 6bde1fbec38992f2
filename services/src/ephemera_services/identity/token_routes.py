"""Tokens for programs: introspection (RFC 7662) and revocation (RFC 7009). Errors are problem documents.

*Introspection* is for services that do not verify tokens themselves, or need the current state. They
authenticate with a bearer token of their own, from the setting `introspection_tokens`. Access tokens have the
`token_type` Bearer; refresh tokens have none, because no resource accepts them.

*Revocation* is for clients: any holder of a token may revoke it. Revoking a refresh token ends its sign-in
with all tokens; an access token is revoked alone. An invalid token is not an error: the response is the same.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from ephemera_services.identity.auth_routes import Service
from ephemera_services.identity.forms import Introspection
from ephemera_services.runtime import problems, unauthorized

router = APIRouter(prefix="/auth", tags=["tokens"])

GivenToken = Annotated[str, Form(min_length=1, max_length=8192)]
Hint = Annotated[str, Form(max_length=40, description="Not needed: a token states its own kind")]


class ResourceServer(SecurityBase):
    """Requires the bearer token of a service that may introspect."""

    def __init__(self) -> None:
        self.model = HTTPBearer()
        self.scheme_name = "IntrospectionToken"

    async def __call__(self, request: Request) -> None:
        """401 unless the token is one of the setting's."""
        accepted = request.app.state.service.introspection_tokens
        sent = request.headers.get("authorization", "")
        if accepted is None or not accepted.accepts_header(sent):
            raise unauthorized("Send a token of EPHEMERA_IDENTITY_INTROSPECTION_TOKENS.", token=bool(sent))


@router.post("/introspect", response_model_exclude_none=True, dependencies=[Depends(ResourceServer())])
async def introspect(
    service: Service,
    response: Response,
    token: GivenToken,
    token_type_hint: Hint = "",  # noqa: ARG001
) -> Introspection:
    """What a token says, if it is active: signed by us, not expired, not revoked."""
    response.headers["cache-control"] = "no-store"
    claims = await service.tokens.introspect(token)
    if claims is None:
        return Introspection(active=False)
    return Introspection(
        active=True,
        token_type="Bearer" if claims.kind == "access" else None,
        sub=claims.sub,
        sid=claims.family,
        jti=claims.jti,
        iss=service.settings.issuer,
        aud=service.settings.audience,
        iat=int(claims.iat),
        exp=int(claims.exp),
        role=claims.extra.get("role"),
    )


@router.post("/revoke", responses=problems(429))
async def revoke(
    service: Service,
    request: Request,
    token: GivenToken,
    token_type_hint: Hint = "",  # noqa: ARG001
) -> dict[str, str]:
    """Revoke a token; 200 even if it is not valid."""
    await service.gate.consume_confirmation(request.scope)
    await service.tokens.revoke(token, service.gate.origin(request))
    return {}
