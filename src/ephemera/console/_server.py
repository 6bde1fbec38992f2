"""Run the console: one process with its own uvicorn, and a clean shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
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
from ephemera.web import Cookie


def create_app(settings: ConsoleSettings, pages: tuple[ConsolePage, ...] = PAGES) -> Guard:
    """The console as an ASGI application; NiceGUI allows one per process."""
    access = ConsoleAccess(settings.user, settings.password)
    console = Console(settings, access)
    cookie = _cookie(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(console.running())
            except EphemeraError as failure:
                app.state.failure = failure
                raise
            yield

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.routes.extend(SignInRoutes(access, cookie).routes)
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
    return Guard(app, access, origins, cookie)


def serve(settings: ConsoleSettings, pages: tuple[ConsolePage, ...] = PAGES) -> bool:
    """Run the console until it is stopped; returns whether it started. Errors of a service are raised."""
    app = create_app(settings, pages)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt, SystemExit):  # uvicorn has its own exit codes
        server.run()
    failure = getattr(app.app.state, "failure", None)
    if isinstance(failure, EphemeraError):
        raise failure
    return server.started


def _cookie(settings: ConsoleSettings) -> Cookie:
    """Sent only to this host, never with a request from another site; only over TLS where there is TLS."""
    secure = (settings.public_url or "").startswith("https://")
    # Cookies ignore ports: several consoles on one host need different names.
    name = "__Host-ephemera-console" if secure else f"ephemera-console-{settings.port}"
    return Cookie(name=name, same_site="strict", secure=secure)
