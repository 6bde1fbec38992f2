"""The reference of settings: every `EPHEMERA_` variable of every service and command, from the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import textwrap
import types
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import typer.main

from ephemera.cli import commands, create_app
from ephemera_services import SERVICES
from ephemera_services.runtime import Secret, ServiceSettings, variable_names
from tools.reference.cli_page import found

_INTRODUCTION = """\
# Reference of settings

<!-- Made by `make docs`; do not edit. -->

A service is configured by its environment alone. Values are text: numbers, `true` or `false`, durations as
`500ms`, `30s`, `15m`, `1h` or `7d`, lists with commas. An empty variable counts as unset. A variable of a
service's own that does not exist, or a value out of its bounds, stops the start with one line that names it.
Secrets are never shown.

Each flag of a command has a variable, too: `--some-flag` is `EPHEMERA_SOME_FLAG`. [Commands](../cli.md)
explains them.
"""
WITHOUT_FLAG = {
    "EPHEMERA_CONSOLE_PASSWORD": "The password that opens `console`; without it a new one is generated. "
    "It has no flag, since others can read a command line.",
    "EPHEMERA_CONSOLE_ACCOUNTS": "Further accounts of `console`, one per line: a name, a role (`view`, "
    "`operate` or `administer`) and a password, separated by spaces.",
    "EPHEMERA_VALKEY_BINARY": "A redis-server or valkey-server to run in place of the embedded one.",
}
"""Variables that belong to no service and have no flag."""
_PLAIN = {str: "text", int: "whole number", float: "number", bool: "`true` or `false`", timedelta: "duration"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable of a service."""

    variable: str
    kind: str
    default: str
    means: str
    """What it is for; empty if it has no docstring."""


def reference() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, _section("All services", settings_of(ServiceSettings))]
    parts += [_section(f"The service {name}", own_settings(name)) for name in SERVICES]
    parts.append(_commands())
    return "\n".join(parts)


def own_settings(system: str) -> list[Setting]:
    """The variables that one service has besides those of all."""
    shared = set(variable_names(ServiceSettings).values())
    settings = importlib.import_module(f"ephemera_services.{system}.settings").Settings
    return [setting for setting in settings_of(settings) if setting.variable not in shared]


def settings_of(settings: type[ServiceSettings]) -> list[Setting]:
    """The variables of a settings class, as its fields, their types and the texts below them say."""
    says = _texts(settings)
    names = variable_names(settings)
    return [
        Setting(names[field.name], _kind(field.type), _default(field), says.get(field.name, ""))
        for field in msgspec.structs.fields(settings)
    ]


def _section(title: str, settings: list[Setting]) -> str:
    rows = [f"| `{each.variable}` | {each.kind} | {each.default} | {each.means} |" for each in settings]
    head = ["| variable | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", *head, *rows, ""])


def command_variables() -> dict[str, set[str]]:
    """The variables of all commands, each with the commands that take it."""
    tree: Any = typer.main.get_command(create_app())
    users: dict[str, set[str]] = defaultdict(set)
    for command in commands():
        for parameter in found(tree, command.name).params:
            users[parameter.envvar].add(command.name)
    return users


def _commands() -> str:
    rows = [
        f"| `{variable}` | {', '.join(f'`{name}`' for name in sorted(names))} |"
        for variable, names in sorted(command_variables().items())
    ]
    without_flag = [f"| `{variable}` | {means} |" for variable, means in WITHOUT_FLAG.items()]
    head = ["## Commands", "", "| variable | commands |", "|---|---|"]
    more = [
        "",
        "Without a flag:",
        "",
        "| variable | |",
        "|---|---|",
    ]
    return "\n".join([*head, *rows, *more, *without_flag, ""])


def _texts(settings: type[ServiceSettings]) -> dict[str, str]:
    """What stands below each field of the class and of those it extends."""
    said: dict[str, str] = {}
    for each in reversed(settings.__mro__):
        if issubclass(each, ServiceSettings):
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            body = node.body  # type: ignore[attr-defined]
            for field, text in itertools.pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    said[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return said


def _kind(kind: Any) -> str:
    """A type in words, with its bounds."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _kind(next(each for each in get_args(kind) if each is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in get_args(kind))
    if origin is tuple:
        return "list"
    if origin is Annotated:
        plain, *more = get_args(kind)
        return _kind(plain) + "".join(_bounds(each) for each in more if isinstance(each, msgspec.Meta))
    return "secret" if kind is Secret else _PLAIN[kind]


def _bounds(meta: msgspec.Meta) -> str:
    if meta.pattern is not None:
        return ""
    low, high = meta.ge, meta.le
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    return f", from {low:,}" if low is not None else f", to {high:,}" if high is not None else ""


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is None or value == ():
        return "none"
    if isinstance(value, timedelta):
        return f"`{_duration(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _duration(value: timedelta) -> str:
    """As one would write it into a variable."""
    seconds = value.total_seconds()
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds % length == 0:
            return f"{int(seconds // length)}{unit}"
    return f"{round(seconds * 1000)}ms"
