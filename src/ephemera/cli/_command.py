"""What each command declares besides its function: a name, examples and exit codes, all shown by `--help`.

A command is a function whose parameters are annotated by `flag`, so that each has help and its environment
twin by one rule: `--some-flag` is `EPHEMERA_SOME_FLAG`. Its docstring is its help.
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
_PARTS = re.compile(r"--?\S+(?: [^->\s]\S*)?|> \S+|\S+")  # a flag with its value, a file to write, or a word
_LONGEST_LINE = 80 - 6  # characters; the help has margins, and a backslash may follow
_GOES_ON = "    "
GROUPS = {
    "events": "Events: how streams stand, what failed, and trying it again.",
    "jobs": "Jobs: what became of them, and what to do about it.",
    "locks": "Locks: what is held, and by whom.",
}
"""What the commands of a group are about."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `ephemera`."""

    name: str
    run: Callable[..., None]
    examples: tuple[tuple[str, str], ...]
    """Pairs: what it does, and the command line without `ephemera NAME`."""
    exits: Mapping[int, str] = field(default_factory=dict)
    """What exit codes mean here; 0, 1 and 2 have their usual meaning unless said."""

    def add_to(self, app: typer.Typer) -> None:
        """Register the command under its name; `locks list` is `list` in the group `locks`."""
        group, _, name = self.name.rpartition(" ")
        place = _group(app, group) if group else app
        described = place.command(name, cls=CommandWithFlags, help=escape(self.help()), epilog=self._epilog())
        described(self.run)

    def help(self) -> str:
        """The function's docstring, a line a paragraph, so that the terminal decides where it breaks."""
        paragraphs = inspect.cleandoc(self.run.__doc__ or "").split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    def exit_codes(self) -> dict[int, str]:
        """Every exit code with its meaning."""
        return {0: "done", 1: "failed", 2: "called wrongly", **self.exits}

    def lines(self) -> list[tuple[str, str]]:
        """The examples as one types them."""
        return [(does, f"ephemera {self.name} {words}".rstrip()) for does, words in self.examples]

    def _epilog(self) -> str:
        shown = [
            f"  [dim]# {escape(does)}[/]\n  [cyan]{escape(broken(line))}[/]" for does, line in self.lines()
        ]
        codes = ", ".join(f"{code} {escape(meaning)}" for code, meaning in self.exit_codes().items())
        return "\n".join(["[bold]Examples[/]", *shown, "", f"[bold]Exit codes[/]: {codes}."])


def flag(name: str, help: str, **more: Any) -> Any:  # noqa: A002
    """An option `--name` with its environment twin."""
    return typer.Option(name, help=help, envvar=_twin(name), **more)


def broken(line: str) -> str:
    """A command line as it is shown: a long one goes on below, so that a terminal need not break it.

    It breaks with a backslash, never between a flag and its value, and can be copied as it stands.
    """
    shown: list[str] = []
    for part in _PARTS.findall(line):
        if shown and len(shown[-1]) + len(" ") + len(part) <= _LONGEST_LINE:
            shown[-1] += f" {part}"
        else:
            shown.append(_GOES_ON + part if shown else part)
    return " \\\n  ".join(shown)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, on uvloop's event loop where that is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def _group(app: typer.Typer, name: str) -> typer.Typer:
    """The group of commands of this name, made when the first of them is added."""
    for known in app.registered_groups:
        if known.name == name and known.typer_instance is not None:
            return known.typer_instance
    group = typer.Typer(cls=GroupWithFlags, no_args_is_help=True, help=GROUPS[name])
    app.add_typer(group, name=name)
    return group


def _twin(name: str) -> str:
    return ENVIRONMENT + name.strip("-").upper().replace("-", "_")


AsJson = Annotated[bool, flag("--json", "Print JSON, for machines.")]
Url = Annotated[
    str, flag("--url", "The server: redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://.")
]
_WHICH = "A catalogue as module:object, or the name of a built-in system."
CatalogueArgument = Annotated[
    Catalogue, typer.Argument(help=_WHICH, metavar="NAME", envvar="EPHEMERA_CATALOGUE", parser=load_catalogue)
]
CatalogueFlag = Annotated[Catalogue, flag("--catalogue", _WHICH, metavar="NAME", parser=load_catalogue)]
