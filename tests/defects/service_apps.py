"""Services in the test's own process, on the shared servers, asked from any address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any
from uuid import uuid4

import httpx
from fastapi import FastAPI

from ephemera.embedded import Postgres, Valkey
from ephemera_services.runtime import read_settings

PASSWORD = "correct horse battery"
ADMIN = {"email": "root@example.com", "password": "the administrator's own"}
_QUICK = {
    "identity": {
        "EPHEMERA_IDENTITY_PASSWORD_MEMORY": "8",
        "EPHEMERA_IDENTITY_WINDOWS": "sliding",
        "EPHEMERA_IDENTITY_ADMIN_EMAIL": ADMIN["email"],
        "EPHEMERA_IDENTITY_ADMIN_PASSWORD": ADMIN["password"],
    },
    "slides": {
        "EPHEMERA_SLIDES_DEMO": "true",
        "EPHEMERA_SLIDES_PASSWORD_MEMORY": "8",
        "EPHEMERA_SLIDES_SECURE_COOKIES": "false",
        "EPHEMERA_SLIDES_OPERATOR_TOKEN": "the-token-of-an-operator",
    },
    "league": {
        "EPHEMERA_LEAGUE_PASSWORD_MEMORY": "8",
        "EPHEMERA_LEAGUE_SECURE_COOKIES": "false",
        "EPHEMERA_LEAGUE_DEMO_REFEREE": "false",
    },
}


class App:
    """An open application."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.service: Any = app.state.service

    async def ask(self, method: str, path: str, *, address: str = "192.0.2.1", **more: Any) -> httpx.Response:
        """One request from an address; an exception that the service does not handle is a 500."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=(address, 1))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", trust_env=False
        ) as client:
            return await client.request(method, path, **more)


@asynccontextmanager
async def opened(
    name: str,
    server: Valkey,
    postgres: Postgres,
    variables: Mapping[str, str] | None = None,
    *,
    empty: bool = True,
) -> AsyncIterator[App]:
    """A service on a Redis, which is emptied before, and on a database of its own unless one is given."""
    if empty:
        server.ask("FLUSHALL")
    package = import_module(f"ephemera_services.{name}")
    environment = {
        "EPHEMERA_URL": server.url,
        "EPHEMERA_DEVELOPMENT": "true",
        "EPHEMERA_DATABASE_URL": postgres.database(f"{name}_{uuid4().hex[:12]}"),
        **_QUICK.get(name, {}),
        **(variables or {}),
    }
    app = package.create_app(read_settings(package.Settings, environment))
    async with app.router.lifespan_context(app):
        yield App(app)


async def register(app: App, **changes: str) -> str:
    """A new user of identity; the address."""
    email = f"{uuid4().hex}@example.com"
    form = {"email": email, "password": PASSWORD, "first_name": "A", "last_name": "B", **changes}
    answer = await app.ask("POST", "/auth/register", json=form)
    assert answer.status_code < 300, answer.text
    return form["email"]


async def sign_in(
    app: App, email: str, password: str = PASSWORD, address: str = "192.0.2.1"
) -> httpx.Response:
    """The answer to one sign-in at identity."""
    form = {"email": email, "password": password}
    return await app.ask("POST", "/auth/login", address=address, json=form)
