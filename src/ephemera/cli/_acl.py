"""`ephemera acl`: a server user with least privilege for a service or its monitoring."""

import hashlib
from typing import Annotated

import msgspec
import typer

from ephemera.cli._command import AsJson, CatalogueArgument, Command, flag
from ephemera.cli._flag_errors import option_errors
from ephemera.keyspace import Catalogue, Role
from ephemera.operations.configuration import PURPOSES, AccessRules, access_rules, has_local_caches


def acl(
    name: CatalogueArgument,
    user: Annotated[
        str | None, flag("--user", "The user's name.", show_default="the catalogue's name", metavar="NAME")
    ] = None,
    role: Annotated[
        Role | None,
        flag(
            "--role",
            "Only the keys on the server of this role, cache or queue.",
            show_default="both, on one server",
        ),
    ] = None,
    purposes: Annotated[
        list[str] | None,
        flag(
            "--for",
            "What the user is for: service; metrics, to read INFO; monitoring, to audit without writing; "
            "tracking, for local caches on a server of their own. Repeatable.",
            show_default="service",
        ),
    ] = None,
    password_file: Annotated[
        typer.FileText | None,
        flag(
            "--password-file", "Read the password from this file ('-': stdin); the rule contains its SHA-256."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Print a user with least privilege, as one line of an ACL file.

    A service gets the catalogue's own keys and channels, the commands of the types it declares, scripts, and
    what a connection needs. Everything else is refused: other keys, KEYS, SCAN, INFO, FLUSHALL, CONFIG.

    With `--for service --for metrics` its /metrics also has the server figures. With `--for monitoring` a
    separate user can run `ephemera doctor`, `audit` and the lists: it sees the names, types and sizes of all
    keys and the contents of the catalogue's keys, and writes nothing.

    With `--for service --for tracking` the server announces changes to local caches, which otherwise ask at
    each read. Before Redis 8.10 it announces the names of all keys, so give it only on a server that no other
    service uses.
    """
    digest = _digest(password_file)
    for each in purposes or ():
        if each not in PURPOSES:
            raise typer.BadParameter(f"{each!r} is not one of {', '.join(PURPOSES)}", param_hint="--for")
    with option_errors(user="--user"):
        rules = access_rules(
            name, user or name.name, role=role, purposes=purposes or ("service",), password_sha256=digest
        )
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode({**_fields(rules), "line": rules.line()})))
    else:
        typer.echo(rules.line())
    _advise_tracking(name, rules, role)
    if digest is None:
        typer.echo(
            f"ephemera: {rules.user} has no password yet; give --password-file, "
            "or add >PASSWORD or #SHA256 to the line",
            err=True,
        )


def _advise_tracking(catalogue: Catalogue, rules: AccessRules, role: Role | None) -> None:
    if "client|tracking" in rules.commands:
        text = (
            f"{rules.user} can follow the names of all keys that change on the server, with CLIENT TRACKING "
            "BCAST (before Redis 8.10, and on Valkey): let no other service use that server"
        )
    elif "set" in rules.commands and role != "queue" and has_local_caches(catalogue):
        text = (
            f"the local caches of {catalogue.name} ask the server at each read; on a server that no other "
            "service uses, --for tracking saves that round trip"
        )
    else:
        return
    typer.echo(f"ephemera: {text}", err=True)


def _fields(rules: object) -> dict[str, object]:
    return dict(msgspec.to_builtins(rules))


def _digest(file: typer.FileText | None) -> str | None:
    if file is None:
        return None
    password = file.read().rstrip("\r\n")
    if not password:
        raise typer.BadParameter("it contains no password", param_hint="'--password-file'")
    return hashlib.sha256(password.encode()).hexdigest()


COMMAND = Command(
    "acl",
    acl,
    examples=(
        ("a line for users.acl", "myservice.keys:catalogue --user slides --password-file secret.txt"),
        ("the user of the queue server", "myservice.keys:catalogue --role queue"),
        ("a user for monitoring", "myservice.keys:catalogue --user watcher --for monitoring"),
        ("a service alone on its server", "myservice.keys:catalogue --for service --for tracking"),
        ("as JSON", "myservice.keys:catalogue --json"),
    ),
)
