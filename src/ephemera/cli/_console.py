"""`ephemera console`: run the web console."""

import ipaddress
import logging
import os
import secrets
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.cli._command import Command, Url, flag
from ephemera.cli._job_flags import QueueUrl
from ephemera.cli._logs import configure_logs
from ephemera.cli._ports import check_free, is_loopback
from ephemera.keyspace import Catalogue

VARIABLE = "EPHEMERA_CONSOLE_PASSWORD"
ACCOUNTS = "EPHEMERA_CONSOLE_ACCOUNTS"
_COMPARED = "compared"
_ROLES = ("view", "operate", "administer")
_MIN_PASSWORD = 12  # characters, when other machines can reach the console


def console(
    url: Url,
    catalogue: Annotated[
        list[Catalogue] | None,
        flag(
            "--catalogue",
            "A catalogue of the servers, by name or module:object; repeatable. Without one, keys appear by "
            "the library that writes them, or by shape.",
            metavar="NAME",
            parser=load_catalogue,
        ),
    ] = None,
    queue_url: QueueUrl = None,
    database_url: Annotated[
        str | None,
        flag("--database-url", "PostgreSQL with jobs and flushes; without it they are not shown."),
    ] = None,
    metrics_url: Annotated[
        list[str] | None,
        flag("--metrics-url", "A service's /metrics, for the hit ratio of keyspaces; repeatable."),
    ] = None,
    compare_url: Annotated[
        str | None,
        flag("--compare-url", "A second server with the same catalogues, to show beside the first."),
    ] = None,
    history: Annotated[
        Path | None,
        flag(
            "--history",
            "A small file that keeps hit ratios and latencies of the last hours across restarts; FILE.key "
            "beside it keeps browsers known that signed in.",
        ),
    ] = None,
    host: Annotated[str, flag("--host", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, flag("--port", "The port to listen on.", min=1, max=65535)] = 8085,
    public_url: Annotated[
        str | None,
        flag(
            "--public-url", "The URL by which browsers reach it; required for a --host other than loopback."
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        flag("--trusted-proxy", "A proxy, or its network, whose X-Forwarded-For is trusted; repeatable."),
    ] = None,
    user: Annotated[str, flag("--user", "The user who signs in; named in the action log.")] = "operator",
    allow_actions: Annotated[
        bool, flag("--allow-actions", "Allow changes; the console is read-only without it.")
    ] = False,
) -> None:
    """Show a service's keys, jobs, streams and limits in a browser, and act on them.

    The password is read from the environment variable EPHEMERA_CONSOLE_PASSWORD; without it a new one is
    printed at the start. EPHEMERA_CONSOLE_ACCOUNTS has further accounts, one per line: a name, a role (view,
    operate or administer) and a password, separated by spaces. The account of --user administers.

    The console listens on loopback, unless --public-url says where browsers reach it; that requires passwords
    of at least 12 characters and a proxy with TLS. Values of sensitive keyspaces are never shown. Logs are
    JSON lines on stderr, with one line for every action.
    """
    password = os.environ.get(VARIABLE, "")
    accounts = _accounts(os.environ.get(ACCOUNTS, ""), user, exposed=public_url is not None)
    _check_reach(host, public_url, password)
    _check_proxies(trusted_proxy or [])
    if not user.strip():
        raise typer.BadParameter("it must not be empty", param_hint="--user")
    for each in metrics_url or ():
        if not each.startswith(("http://", "https://")):
            raise typer.BadParameter(f"{each!r} is not http://host/metrics", param_hint="--metrics-url")
    try:
        from ephemera.console import Account, ConsoleService, ConsoleSettings, serve
    except ModuleNotFoundError as missing:
        typer.echo(f"ephemera: {missing}", err=True)
        raise typer.Exit(1) from None
    configure_logs("info")
    for chatty in ("uvicorn.error", "httpx"):  # at lower levels they log URLs, which may contain secrets
        logging.getLogger(chatty).setLevel(logging.WARNING)
    check_free(host, port)
    service = ConsoleService(tuple(catalogue or ()), url, queue_url, database_url, tuple(metrics_url or ()))
    services = [service]
    if compare_url is not None:
        services.append(ConsoleService(tuple(catalogue or ()), compare_url, name=_COMPARED))
    shown = password or secrets.token_urlsafe(12)
    typer.echo(f"The console is at {public_url or f'http://{host}:{port}'}, the user is {user}.")
    if not password:
        typer.echo(f"The password, valid until the next start: {shown}")
    settings = ConsoleSettings(
        tuple(services),
        user,
        shown,
        host,
        port,
        public_url,
        allow_actions,
        tuple(trusted_proxy or ()),
        tuple(Account(*each) for each in accounts),
        history,
    )
    if not serve(settings):
        raise typer.Exit(1)


def _check_reach(host: str, public_url: str | None, password: str) -> None:
    """Refuse access from other machines without a public URL and a password."""
    if public_url is not None:
        parts = urlsplit(public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
            problem = f"{public_url!r} is not https://host or https://host:port"
            raise typer.BadParameter(problem, param_hint="--public-url")
    if not is_loopback(host) and public_url is None:
        problem = (
            f"{host} can be reached from other machines: give its URL with --public-url, or use 127.0.0.1"
        )
        raise typer.BadParameter(problem, param_hint="--host")
    if public_url is not None and len(password) < _MIN_PASSWORD:
        problem = f"other machines can reach it: set {VARIABLE} to at least {_MIN_PASSWORD} characters"
        raise typer.BadParameter(problem, param_hint="--public-url")


def _accounts(text: str, user: str, *, exposed: bool) -> list[tuple[str, str, Any]]:
    """The further accounts: user, password and role. Errors name the line, never what it holds."""
    found: list[tuple[str, str, Any]] = []
    lines = (line for line in text.splitlines() if line.strip())
    for number, line in enumerate(lines, 1):
        name, role, password = (*line.strip().split(None, 2), "", "")[:3]
        problem = ""
        if role not in _ROLES or not password:
            problem = f"it is not a name, a role ({', '.join(_ROLES)}) and a password"
        elif name == user or any(name == other for other, _, _ in found):
            problem = "its name is taken by another account"
        elif exposed and len(password) < _MIN_PASSWORD:
            problem = f"its password needs at least {_MIN_PASSWORD} characters: other machines can reach it"
        if problem:
            raise typer.BadParameter(problem, param_hint=f"line {number} of {ACCOUNTS}")
        found.append((name, password, role))
    return found


def _check_proxies(proxies: list[str]) -> None:
    for each in proxies:
        try:
            ipaddress.ip_network(each)
        except ValueError as problem:
            raise typer.BadParameter(str(problem), param_hint="--trusted-proxy") from None


_HERE = "--url redis://cache.internal --catalogue myservice.keys:catalogue"
_MORE = "--queue-url redis://queue.internal --database-url postgresql://db.internal/service"
COMMAND = Command(
    "console",
    console,
    examples=(
        ("read-only", _HERE),
        ("with queues, jobs and actions", f"{_HERE} {_MORE} --allow-actions"),
        (
            "for other machines, behind a proxy with TLS",
            f"{_HERE} --host 10.0.0.5 --public-url https://console.example.com",
        ),
    ),
)
