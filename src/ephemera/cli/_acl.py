"""`ephemera acl`: a server user with the permissions of one catalogue's service, or of who watches it."""

import hashlib
from typing import Annotated

import msgspec
import typer

from ephemera.cli._command import AsJson, CatalogueArgument, Command, flag
from ephemera.cli._flag_errors import given_as
from ephemera.keyspace import Role
from ephemera.operations.configuration import PURPOSES, access_rules


def acl(
    name: CatalogueArgument,
    user: Annotated[
        str | None, flag("--user", "The user's name.", show_default="the catalogue's name", metavar="NAME")
    ] = None,
    role: Annotated[
        Role | None,
        flag(
            "--role",
            "Only what the server of this role carries, cache or queue.",
            show_default="both, on one server",
        ),
    ] = None,
    purposes: Annotated[
        list[str] | None,
        flag(
            "--for",
            "What the user is for: the service; metrics, to read INFO; monitoring, to audit and never write. "
            "May be given several times.",
            show_default="service",
        ),
    ] = None,
    password_file: Annotated[
        typer.FileText | None,
        flag("--password-file", "Read the password here ('-': stdin); the rules hold its SHA-256."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Print the least that a user needs, as one line of an ACL file.

    A service may touch the catalogue's own keys and channels, by the commands of the types it declares, run
    scripts, and keep a connection. Everything else is refused: other keys, KEYS, SCAN, INFO, FLUSHALL,
    CONFIG.

    With `--for service --for metrics` its /metrics have the figures of servers, too. With `--for monitoring`
    a user of its own may run `ephemera doctor`, `audit` and the lists: it sees the names, types and sizes of
    all keys and the contents of the catalogue's, and writes nothing.
    """
    digest = _digest(password_file)
    for each in purposes or ():
        if each not in PURPOSES:
            raise typer.BadParameter(f"{each!r} is none of {', '.join(PURPOSES)}", param_hint="--for")
    with given_as(user="--user"):
        rules = access_rules(
            name, user or name.name, role=role, purposes=purposes or ("service",), password_sha256=digest
        )
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode({**_facts(rules), "line": rules.line()})))
    else:
        typer.echo(rules.line())
    if digest is None:
        typer.echo(
            f"ephemera: nobody can sign in as {rules.user} yet; give --password-file, "
            "or add >PASSWORD or #SHA256 to the line",
            err=True,
        )


def _facts(rules: object) -> dict[str, object]:
    return dict(msgspec.to_builtins(rules))


def _digest(file: typer.FileText | None) -> str | None:
    if file is None:
        return None
    password = file.read().rstrip("\r\n")
    if not password:
        raise typer.BadParameter("it holds no password", param_hint="'--password-file'")
    return hashlib.sha256(password.encode()).hexdigest()


COMMAND = Command(
    "acl",
    acl,
    examples=(
        ("a line for users.acl", "myservice.keys:catalogue --user slides --password-file secret.txt"),
        ("what the queue server's user needs", "myservice.keys:catalogue --role queue"),
        ("who watches it", "myservice.keys:catalogue --user watcher --for monitoring"),
        ("keys, channels and commands apart", "myservice.keys:catalogue --json"),
    ),
)
