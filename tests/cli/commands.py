"""Run the command line inside a test, and list its commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer.main
from typer.testing import CliRunner

from ephemera.cli import create_app

TREE: Any = typer.main.get_command(create_app())
"""The group of all commands, as the parser sees it."""


def parsed(name: str) -> Any:
    """A command as the parser sees it; `locks list` is in the group `locks`."""
    found = TREE
    for word in name.split():
        found = found.commands[word]
    return found


def names(tree: Any = TREE, before: str = "") -> list[str]:
    """The names of all commands, with their group's name."""
    return [
        name
        for word, command in tree.commands.items()
        for name in (names(command, f"{word} ") if hasattr(command, "commands") else [before + word])
    ]


class Outcome:
    """The output of a command, and its exit code."""

    def __init__(self, result: Any) -> None:
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code: int = result.exit_code
        self.out: str = result.stdout
        self.err: str = result.stderr

    @property
    def said(self) -> str:
        """The error without its frame and line breaks."""
        return " ".join(word for word in self.err.split() if word not in ("│", "╭─", "─╮"))


def ephemera(*words: str, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `ephemera WORDS`; only errors that the command line should have caught are raised.

    Its output is as wide as that of a pipe, unless `env` has COLUMNS: those of a test's worker do not count.
    """
    return Outcome(CliRunner().invoke(create_app(), words, env={"COLUMNS": None, **(env or {})}))
