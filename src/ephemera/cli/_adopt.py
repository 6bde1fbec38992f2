"""`ephemera adopt`: where to begin on a server that other libraries use."""

from textwrap import fill

import msgspec
import typer
from rich.text import Text

from ephemera.cli._command import AsJson, Command, Url, run
from ephemera.cli._progress import progress_bar
from ephemera.cli._screens import screen
from ephemera.operations.audit import AuditReport, audit
from ephemera.operations.change import AdoptionStep, adoption
from ephemera.operations.formatting import format_count
from ephemera.operations.survey import SurveyOptions

_DOCS = "docs/"
_INDENT = "   "
_STYLES = {"first:": "bold", "know:": "yellow", "see": "dim"}


def adopt(url: Url, json: AsJson = False) -> None:
    """Show what to change first on a server, for each library that uses it.

    Caches and limits come first, then locks, sessions and jobs: the order in which a mistake costs least.
    Each step has the hazards of the library and the page that explains the move. It only reads.
    """
    with progress_bar() as progress:
        report = run(audit(url, [], SurveyOptions(budget=float("inf")), on_progress=progress))
    steps = adoption(report)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(steps)))
    else:
        _show(report, steps)


def _show(report: AuditReport, steps: list[AdoptionStep]) -> None:
    console = screen(highlight=False)
    for number, step in enumerate(steps, 1):
        console.print(
            f"[bold]{number}. {step.library}[/], {format_count(step.keys, 'key')}, role {step.role}"
        )
        lines = [("first:", step.first), *(("know:", each) for each in step.hazards)]
        for label, sentence in [*lines, ("see", f"{_DOCS}{step.page}")]:
            console.print(_indented(label, sentence, console.width))
        console.print()
    others = report.unknown.keys - sum(step.keys for step in steps)
    if others:
        console.print(
            f"{format_count(others, 'key')} of no known library: ephemera infer --url URL > keys.py"
        )
    if not report.unknown.keys:
        console.print("The server is empty.")


def _indented(label: str, sentence: str, width: int) -> Text:
    """A sentence whose lines all begin behind its label."""
    indent = " " * (len(_INDENT) + len(label) + 1)
    text = Text(fill(f"{label} {sentence}", width, initial_indent=_INDENT, subsequent_indent=indent))
    text.stylize(_STYLES[label], len(_INDENT), len(indent))
    return text


COMMAND = Command(
    "adopt",
    adopt,
    examples=(
        ("where to begin", "--url redis://legacy.internal"),
        ("as JSON", "--url redis://legacy.internal --json"),
    ),
)
