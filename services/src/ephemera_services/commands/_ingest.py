"""`ephemera ingest`: import a whole translation or lexicon into the scripture service."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ephemera.cli import AsJson, Command, DatabaseUrl, QueueUrl, Url, flag, run
from ephemera.errors import EphemeraError

if TYPE_CHECKING:
    from ephemera_services.scripture import ImportProgress

_REPORT_INTERVAL = 1.0  # seconds

File = Annotated[
    Path,
    typer.Argument(
        help="OSIS XML (.xml, .osis), or a table with a line of column names (.tsv, .txt).",
        envvar="EPHEMERA_FILE",
    ),
]
Translation = Annotated[
    str | None, flag("--translation", "The id of the translation, such as kjv; for files with verses.")
]
TranslationName = Annotated[str | None, flag("--name", "Its name; default: what the file says, or the id.")]
Rights = Annotated[str | None, flag("--rights", "Its license; default: what the file says.")]
Replace = Annotated[bool, flag("--replace", "Delete the verses of the translation that the file lacks.")]


def ingest(
    file: File,
    url: Url,
    database_url: DatabaseUrl,
    queue_url: QueueUrl = None,
    translation: Translation = None,
    name: TranslationName = None,
    rights: Rights = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Import a translation or a lexicon into the scripture service, while it runs.

    The file is read and written a thousand items at a time, under the service's ingest lock. What is stored
    already is not written again, so an import that was interrupted continues when you run it again, and
    running it twice changes nothing. When the command ends, no reader sees the old content.
    """
    if not file.is_file():
        raise typer.BadParameter(f"{file} is not a file", param_hint="FILE")
    from ephemera.web import Problem
    from ephemera_services.runtime import InvalidSettings, read_settings
    from ephemera_services.scripture import ImportOptions, Settings, import_file

    flags = {"URL": url, "DATABASE_URL": database_url, "QUEUE_URL": queue_url or ""}
    variables = {**os.environ, **{f"EPHEMERA_{each}": value for each, value in flags.items()}}
    options = ImportOptions(file, translation, name, rights, replace)
    try:
        done = run(import_file(read_settings(Settings, variables), options, _Reporter()))
    except InvalidSettings as wrong:
        raise typer.BadParameter("; ".join(wrong.problems)) from None
    except (EphemeraError, Problem) as failed:
        typer.echo(f"ephemera: {file.name} was not imported: {failed}", err=True)
        raise typer.Exit(1) from None
    _print(done, replace=replace, as_json=as_json)


def _print(done: "ImportProgress", *, replace: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    kind = "entries" if done.schema == "lexicon" else "verses"
    summary = f"{done.read:,} {kind}: {done.changed:,} new or changed, {done.read - done.changed:,} as before"
    typer.echo(summary + (f", {done.deleted:,} deleted" if replace else ""))
    for reason, count in sorted(done.skipped.items()):
        typer.echo(f"skipped {count:,} {kind}: {reason}", err=True)


class _Reporter:
    """Prints how far the import is, about once a second."""

    def __init__(self) -> None:
        self._due = time.monotonic() + _REPORT_INTERVAL

    def __call__(self, progress: "ImportProgress") -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _REPORT_INTERVAL
            typer.echo(f"{progress.share:.0%}: {progress.read:,} read", err=True)


INGEST = Command(
    "ingest",
    ingest,
    examples=(
        (
            "a translation in OSIS",
            "kjv.osis.xml --translation kjv --url redis://127.0.0.1 --database-url postgresql://127.0.0.1/app",
        ),
        (
            "a lexicon",
            "strongs.tsv --url redis://127.0.0.1 --database-url postgresql://127.0.0.1/app",
        ),
    ),
    exits={1: "failure: the file is wrong, another ingest is in progress, or a server is down"},
)
