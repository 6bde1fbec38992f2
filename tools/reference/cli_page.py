"""The reference page of the command line, made from the commands: `python -m tools.reference.cli_page`.

`docs/cli.md` holds its output, and a test fails when the two differ.
"""

import sys
from typing import Any

import typer.main

from ephemera.cli import Command, commands, create_app

_INTRODUCTION = """\
# The command line

<!-- Made by `make docs`; do not edit. -->

The extra `cli` gives the command `ephemera`.

- **Exit codes**: 0 success, 1 failure or findings, 2 wrong usage.
- **Environment**: each flag may be given as a variable, `--some-flag` as `EPHEMERA_SOME_FLAG`; a flag on the
  command line comes first.
- **Catalogues** are named as `module:object`, looked for in the current folder first, or by the name of a
  built-in system.
- Results go to stdout, everything else to stderr. `--json` is for machines. No password is ever printed.
"""


def reference() -> str:
    """The whole page."""
    tree: Any = typer.main.get_command(create_app())
    return "\n".join([_INTRODUCTION, *(_section(each, found(tree, each.name)) for each in commands())])


def found(tree: Any, name: str) -> Any:
    """A command by its name, `locks list` in the group `locks`."""
    for word in name.split():
        tree = tree.commands[word]
    return tree


def _section(command: Command, parsed: Any) -> str:
    codes = ", ".join(f"{code} {meaning}" for code, meaning in command.exit_codes().items())
    examples = "\n".join(f"# {does}\n{line}" for does, line in command.lines())
    parts = [
        f"## ephemera {command.name}",
        command.help(),
        *([_table(parsed.params)] if parsed.params else []),
        f"```console\n{examples}\n```",
        f"Exit codes: {codes}.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(parameters: list[Any]) -> str:
    rows = [_row(each) for each in parameters]
    return "\n".join(
        ["| | environment | default | |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    )


def _row(parameter: Any) -> tuple[str, str, str, str]:
    is_flag = parameter.opts[0].startswith("-")
    name = parameter.opts[0] if is_flag else parameter.metavar or parameter.name
    return f"`{name}`", f"`{parameter.envvar}`", _default(parameter), parameter.help or ""


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return str(parameter.show_default)
    return "" if parameter.default in (None, False, "", [], ()) else f"`{parameter.default}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
