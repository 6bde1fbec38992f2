"""What identity's profile read is measured against: the same FastAPI route, with nothing behind it."""

from __future__ import annotations

from uuid import UUID

from fastapi import FastAPI, Response

CONSTANT = (
    b'{"user_id":"7e6d37b1-e5ba-450d-8fec-30a61e2e2e1c","email":"taro@example.com","first_name":"Taro",'
    b'"last_name":"Yamada","phone":"090-1234-5678","address":"1-2-3 Shibuya, Tokyo",'
    b'"cached_at":"2025-09-30T10:00:00.000000Z"}'
)

constant = FastAPI()


@constant.get("/api/profiles/{user_id}")
async def profile(user_id: UUID) -> Response:
    """Always the same profile."""
    return Response(CONSTANT, media_type="application/json")
