"""A command: a function with a name, examples and exit codes, all shown by `--help`.

The function's parameters are annotated with `flag`, so that each has help and an environment variable:
`--some-flag` is `EPHEMERA_SOME_FLAG`. Its docstring is the help text.
"""

import asyncio
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from ephemera.cli._application import CommandWithFlags, GroupWithFlags
from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.keyspace import Catalogue

T = TypeVar("T")
ENVIRONMENT = "EPHEMERA_"
_PARTS = re.compile(r"--?\S+(?: [^->\s]\S*)?|> \S+|\S+")  # an option with its value, a redirection, or a word
_LONGEST_LINE = 80 - 6  # characters; the help has margins, and a backslash may follow
_CONTINUATION = "    "
GROUPS = {
    "events": "Event streams: lag, pending events, dead letters, replay.",
    "jobs": "Jobs: list, show, retry, cancel; queues and schedules.",
    "locks": "Locks: the held ones and their holders.",
    "migrate": "SQL tables of declarations: create, upgrade, compare.",
}
"""The help of each group of commands."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `ephemera`."""

    name: str
    run: Callable[..., None]
    examples: tuple[tuple[str, str], ...]
    """Pairs: a description, and the command line without `ephemera NAME`."""
    exits: Mapping[int, str] = field(default_factory=dict)
    """Exit codes with a special meaning; 0, 1 and 2 have their usual one otherwise."""

    def add_to(self, app: typer.Typer) -> None:
        """Register the command under its name; `locks list` is `list` in the group `locks`."""
        group, _, name = self.name.rpartition(" ")
        parent = _group(app, group) if group else app
        register = parent.command(name, cls=CommandWithFlags, help=escape(self.help()), epilog=self._epilog())
        register(self.run)

    def help(self) -> str:
        """The function's docstring, one line per paragraph, so that the terminal wraps it."""
        paragraphs = inspect.cleandoc(self.run.__doc__ or "").split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    def exit_codes(self) -> dict[int, str]:
        """Every exit code with its meaning."""
        return {0: "success", 1: "failure", 2: "wrong usage", **self.exits}

    def lines(self) -> list[tuple[str, str]]:
        """The examples as typed."""
        return [(does, f"ephemera {self.name} {words}".rstrip()) for does, words in self.examples]

    def _epilog(self) -> str:
        shown = [
            f"  [dim]# {escape(does)}[/]\n  [cyan]{escape(wrapped(line))}[/]" for does, line in self.lines()
        ]
        codes = ", ".join(f"{code} {escape(meaning)}" for code, meaning in self.exit_codes().items())
        return "\n".join(["[bold]Examples[/]", *shown, "", f"[bold]Exit codes[/]: {codes}."])


def flag(name: str, text: str, /, **options: Any) -> Any:
    """An option `--name` with its environment variable."""
    return typer.Option(name, help=text, envvar=_variable(name), **options)


def wrapped(line: str) -> str:
    """A command line as shown in help: a long one continues on the next line.

    It breaks with a backslash, never between an option and its value, and can be copied as it is.
    """
    shown: list[str] = []
    for part in _PARTS.findall(line):
        if shown and len(shown[-1]) + len(" ") + len(part) <= _LONGEST_LINE:
            shown[-1] += f" {part}"
        else:
            shown.append(_CONTINUATION + part if shown else part)
    return " \\\n  ".join(shown)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop if it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def _group(app: typer.Typer, name: str) -> typer.Typer:
    """The group of this name, created with its first command."""
    for known in app.registered_groups:
        if known.name == name and known.typer_instance is not None:
            return known.typer_instance
    group = typer.Typer(cls=GroupWithFlags, no_args_is_help=True, help=GROUPS[name])
    app.add_typer(group, name=name)
    return group


def _variable(name: str) -> str:
    return ENVIRONMENT + name.strip("-").upper().replace("-", "_")


AsJson = Annotated[bool, flag("--json", "Print JSON.")]
"""The option `--json`."""
Url = Annotated[
    str, flag("--url", "The server: redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://.")
]
"""The option `--url`."""
_WHICH = "A catalogue, by registered name or module:object."
CatalogueArgument = Annotated[
    Catalogue, typer.Argument(help=_WHICH, metavar="NAME", envvar="EPHEMERA_CATALOGUE", parser=load_catalogue)
]
"""An argument that names a catalogue."""
CatalogueFlag = Annotated[Catalogue, flag("--catalogue", _WHICH, metavar="NAME", parser=load_catalogue)]
"""The option `--catalogue`."""
