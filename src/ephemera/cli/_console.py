"""`ephemera console`: the web console, a process of its own."""

import ipaddress
import logging
import os
import secrets
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.cli._command import Command, Url, flag
from ephemera.cli._job_flags import QueueUrl
from ephemera.cli._logs import configure_logs
from ephemera.cli._ports import check_free
from ephemera.keyspace import Catalogue

PASSWORD = "EPHEMERA_CONSOLE_PASSWORD"  # noqa: S105 - its name
_SHORTEST = 12  # characters of a password that others on the network may try


def console(
    url: Url,
    catalogue: Annotated[
        list[Catalogue],
        flag(
            "--catalogue",
            "What the servers carry, as module:object or a built-in system; may be given several times.",
            metavar="NAME",
            parser=load_catalogue,
        ),
    ],
    queue_url: QueueUrl = None,
    database_url: Annotated[
        str | None,
        flag("--database-url", "PostgreSQL, where jobs and flushes are kept; without it they are not shown."),
    ] = None,
    metrics_url: Annotated[
        list[str],
        flag(
            "--metrics-url", "A service's /metrics, for the hit ratio of spaces; may be given several times."
        ),
    ] = [],  # noqa: B006 - typer copies it
    host: Annotated[str, flag("--host", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, flag("--port", "The port to listen on.", min=1, max=65535)] = 8085,
    public_url: Annotated[
        str | None,
        flag("--public-url", "By which URL others reach it; needed for a --host that is not loopback."),
    ] = None,
    user: Annotated[str, flag("--user", "Who signs in; named in the log of actions.")] = "operator",
    allow_actions: Annotated[
        bool, flag("--allow-actions", "Let who is signed in change something; read-only without it.")
    ] = False,
) -> None:
    """Show a service's keys, jobs, streams and limits in a browser, and act on them.

    The password is that of the environment variable EPHEMERA_CONSOLE_PASSWORD, or a new one that is printed
    at the start. It listens on loopback alone, unless --public-url names where others reach it, which then
    needs a password of its own of at least 12 characters; put a proxy with TLS before it. Values of sensitive
    spaces are never shown. Logs are JSON lines on stderr, with one for every action: who, what, to what.
    """
    password = os.environ.get(PASSWORD, "")
    _check_reach(host, public_url, password)
    if not user.strip():
        raise typer.BadParameter("it must name somebody", param_hint="--user")
    for each in metrics_url:
        if not each.startswith(("http://", "https://")):
            raise typer.BadParameter(f"{each!r} is not http://host/metrics", param_hint="--metrics-url")
    try:
        from ephemera.console._connections import PlaceSettings
        from ephemera.console._console import Settings
        from ephemera.console._server import serve
    except ModuleNotFoundError as missing:
        typer.echo(f"ephemera: {missing}", err=True)
        raise typer.Exit(1) from None
    configure_logs("info")
    for chatty in ("uvicorn.error", "httpx"):  # below that level they log URLs, with what is in them
        logging.getLogger(chatty).setLevel(logging.WARNING)
    check_free(host, port)
    place = PlaceSettings(tuple(catalogue), url, queue_url, database_url, tuple(metrics_url))
    shown = password or secrets.token_urlsafe(12)
    typer.echo(f"The console is at {public_url or f'http://{host}:{port}'}, the user is {user}.")
    if not password:
        typer.echo(f"The password, until it is started again: {shown}")
    settings = Settings((place,), user, shown, host, port, public_url, allow_actions)
    if not serve(settings):
        raise typer.Exit(1)


def _check_reach(host: str, public_url: str | None, password: str) -> None:
    """Refuse to be reached by others unless that was said, and guarded."""
    if public_url is not None:
        parts = urlsplit(public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
            problem = f"{public_url!r} is not https://host or https://host:port"
            raise typer.BadParameter(problem, param_hint="--public-url")
    if not _is_loopback(host) and public_url is None:
        problem = f"{host} can be reached by others: say by which URL with --public-url, or use 127.0.0.1"
        raise typer.BadParameter(problem, param_hint="--host")
    if public_url is not None and len(password) < _SHORTEST:
        problem = f"others can reach it: set {PASSWORD} to at least {_SHORTEST} characters"
        raise typer.BadParameter(problem, param_hint="--public-url")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_HERE = "--url redis://cache.internal --catalogue myservice.keys:catalogue"
_MORE = "--queue-url redis://queue.internal --database-url postgresql://db.internal/service"
COMMAND = Command(
    "console",
    console,
    examples=(
        ("look, change nothing", _HERE),
        ("with its queues, jobs and actions", f"{_HERE} {_MORE} --allow-actions"),
        (
            "for others, behind a proxy with TLS",
            f"{_HERE} --host 10.0.0.5 --public-url https://console.example.com",
        ),
    ),
)
