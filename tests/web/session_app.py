"""A FastAPI application with sessions, and a browser for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Response

from ephemera.keyspace import Store, connect
from ephemera.web import RequestSession, SessionMiddleware
from ephemera.web.fastapi import SignedIn, request_session
from tests.patterns.session_fixtures import CATALOGUE, SLIDING, Session

Handle = Annotated[RequestSession[Session], Depends(request_session)]
User = Annotated[Session, Depends(SignedIn(Session))]


def application(store: Store, **options: Any) -> FastAPI:
    """An application to sign in, read, change and sign out."""
    app = FastAPI()
    app.add_middleware(SessionMiddleware, sessions=lambda _: store[SLIDING], **options)

    @app.get("/open")
    async def open_page(handle: Handle) -> dict[str, bool]:
        return {"signed_in": await handle.get() is not None, "known": handle.known}

    @app.get("/front")
    async def front(handle: Handle, response: Response) -> str:
        response.headers["cache-control"] = "public, max-age=60, s-maxage=600"
        return "Good day" if await handle.get() is None else "Welcome back"

    @app.get("/plain")
    async def plain() -> str:
        return "no session needed"

    @app.get("/me")
    async def me(user: User) -> dict[str, str]:
        return {"user_id": user.user_id, "role": user.role}

    @app.post("/login/{user_id}")
    async def login(user_id: str, handle: Handle) -> None:
        sign_in = await handle.begin_sign_in(user_id)
        await handle.start(Session(user_id=user_id), sign_in=sign_in)

    @app.post("/promote")
    async def promote(handle: Handle, user: User) -> dict[str, bool]:
        return {"updated": await handle.update(role="admin"), "rotated": await handle.rotate()}

    @app.post("/logout")
    async def logout(handle: Handle, response: Response) -> None:
        response.headers["cache-control"] = "private"
        await handle.end()

    return app


@asynccontextmanager
async def browser(url: str, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on the application, over TLS for cookies."""
    async with connect(url, CATALOGUE) as store:
        transport = httpx.ASGITransport(app=application(store, **options))
        async with httpx.AsyncClient(transport=transport, base_url="https://test") as client:
            yield client
