"""`ephemera serve`: run one of the built-in services."""

import importlib
import os
import signal
from contextlib import suppress
from typing import Annotated, Any

import typer

from ephemera.cli import Command, address, check_free, flag, is_loopback, refusal
from ephemera.errors import EphemeraError
from ephemera_services import SERVICES


def serve(
    name: Annotated[
        str,
        typer.Argument(
            help="The service: identity, slides, scripture, feed or league.", envvar="EPHEMERA_SERVICE"
        ),
    ],
    host: Annotated[str, flag("--host", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, flag("--port", "The port to listen on.", min=1, max=65535)] = 8000,
) -> None:
    """Run a service until it is stopped.

    It is configured by environment variables, EPHEMERA_..., see its README. Without EPHEMERA_URL and
    EPHEMERA_DATABASE_URL it starts an embedded Valkey and PostgreSQL, which end with it; EPHEMERA_DATA
    names a folder that keeps their data. Logs are JSON lines on stderr.
    """
    create_app, settings_type = _service(name)
    import uvicorn

    from ephemera.web import uvicorn_limits
    from ephemera_services.runtime import (
        STOP_TIMEOUT,
        ServiceServer,
        bind_sockets,
        configure_logging,
        read_settings,
        tune_malloc,
    )

    settings = read_settings(settings_type, os.environ)
    _check_reach(host, settings)
    check_free(host, port)
    configure_logging(settings.log_level)
    tune_malloc()
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the service reads them itself, from trusted proxies
        timeout_keep_alive=75,  # longer than load balancers do, so that they close first
        timeout_graceful_shutdown=STOP_TIMEOUT,
        **uvicorn_limits(
            max_connections=settings.max_connections,
            head_timeout=settings.request_timeout.total_seconds(),
            body_grace=settings.request_timeout.total_seconds(),
        ),
    )
    server = ServiceServer(config)
    signal.signal(signal.SIGTERM, _stop)  # uvicorn repeats the signal after an orderly stop
    with suppress(KeyboardInterrupt, SystemExit):  # uvicorn has exit codes of its own
        server.run(bind_sockets(config))
    if not server.started:
        _explain(name, app.state, settings.database_url)
        raise typer.Exit(1)


def _stop(*_: object) -> None:
    raise SystemExit


def _check_reach(host: str, settings: Any) -> None:
    """Refuse access from other machines without host names, and in development."""
    if is_loopback(host):
        return
    reach = f"{host} can be reached from other machines"
    if settings.development:
        raise typer.BadParameter(
            f"{reach}: unset EPHEMERA_DEVELOPMENT, or use 127.0.0.1", param_hint="--host"
        )
    if not settings.allowed_hosts:
        names = "the names by which clients reach it, such as shop.example.com"
        raise typer.BadParameter(f"{reach}: set EPHEMERA_ALLOWED_HOSTS to {names}", param_hint="--host")


def _explain(name: str, state: Any, database: Any) -> None:
    """Print why a service did not start; the log has the details."""
    from sqlalchemy.exc import DBAPIError

    failure = getattr(state, "failure", None)
    if isinstance(failure, EphemeraError):
        typer.echo(f"ephemera: {name} did not start: {failure}", err=True)
    elif isinstance(failure, DBAPIError) and database is not None:
        problem = (
            f"EPHEMERA_DATABASE_URL, {address(database.reveal())}: the database refused: {refusal(failure)}"
        )
        typer.echo(f"ephemera: {name} did not start: {problem}; is it up, and the URL correct?", err=True)
    elif isinstance(failure, Exception):
        kind = type(failure).__name__
        typer.echo(
            f"ephemera: {name} did not start: {kind}; are the servers up, and the URLs correct?", err=True
        )


def _service(name: str) -> tuple[Any, Any]:
    if name not in SERVICES:
        known = ", ".join(SERVICES)
        raise typer.BadParameter(f"there is no service {name!r}; there are {known}", param_hint="NAME")
    service = importlib.import_module(f"ephemera_services.{name}")
    return service.create_app, service.Settings


SERVE = Command(
    "serve",
    serve,
    examples=(
        ("with embedded servers", "identity"),
        ("reachable from the network", "identity --host 0.0.0.0 --port 8080"),
    ),
)
