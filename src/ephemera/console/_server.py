"""Run the console: one process with its own uvicorn, and a clean shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from importlib.resources import as_file, files

import uvicorn
from fastapi import FastAPI
from nicegui import core, ui
from starlette.staticfiles import StaticFiles

from ephemera.console._access import ConsoleAccess
from ephemera.console._console import Console, ConsoleSettings
from ephemera.console._guard import Guard, Origins
from ephemera.console._pages import PAGES
from ephemera.console._shell import Shell
from ephemera.console._sign_in import SignInRoutes
from ephemera.console._view import ConsolePage
from ephemera.errors import EphemeraError
from ephemera.web import ClientAddress, Cookie, HardeningMiddleware, security_headers, uvicorn_limits

_HSTS = timedelta(days=365)
"""How long browsers use only TLS for a console whose public URL is https."""
_MAX_CONNECTIONS = 1000
_MAX_MESSAGE = 1_000_000  # bytes that a browser sends at once


def create_app(
    console: Console, settings: ConsoleSettings, pages: tuple[ConsolePage, ...] = PAGES
) -> HardeningMiddleware:
    """The console as an ASGI application; NiceGUI allows one per process."""
    access = console.access
    cookie = _cookie(settings)
    client = ClientAddress(settings.trusted_proxies)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(console.running())
            except EphemeraError as failure:
                console.failure = failure
                raise
            yield

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.routes.extend(SignInRoutes(access, cookie, client).routes)
    with as_file(files("ephemera.console").joinpath("assets")) as assets:
        app.mount("/assets", StaticFiles(directory=assets))
    ui.run_with(
        app,
        root=Shell(console, pages).root,
        title="Ephemera",
        dark=None,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=30,
    )
    origins = Origins.of(settings.host, settings.port, settings.public_url)
    core.sio.eio.cors_allowed_origins = sorted(origins.allowed)
    headers = security_headers(hsts=_HSTS if _has_tls(settings) else None)
    guard = Guard(app, access, cookie)
    return HardeningMiddleware(guard, hosts=origins.hosts, origins=origins.allowed, headers=headers)


def serve(settings: ConsoleSettings, pages: tuple[ConsolePage, ...] = PAGES) -> bool:
    """Run the console until it is stopped; returns whether it started. Errors of a service are raised."""
    history = settings.history
    secret_file = None if history is None else history.with_name(f"{history.name}.key")
    access = ConsoleAccess(settings.user, settings.password, settings.accounts, secret_file)
    console = Console(settings, access)
    config = uvicorn.Config(
        create_app(console, settings, pages),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=3,
        **uvicorn_limits(max_connections=_MAX_CONNECTIONS, max_message=_MAX_MESSAGE),
    )
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt, SystemExit):  # uvicorn has its own exit codes
        server.run()
    if console.failure is not None:
        raise console.failure
    return server.started


def _cookie(settings: ConsoleSettings) -> Cookie:
    """Sent only to this host, never with a request from another site; only over TLS where there is TLS."""
    secure = _has_tls(settings)
    # Cookies ignore ports: several consoles on one host need different names.
    name = "__Host-ephemera-console" if secure else f"ephemera-console-{settings.port}"
    return Cookie(name=name, same_site="strict", secure=secure)


def _has_tls(settings: ConsoleSettings) -> bool:
    return (settings.public_url or "").startswith("https://")
