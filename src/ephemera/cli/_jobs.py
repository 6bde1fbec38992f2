"""`ephemera jobs list|show|retry|cancel`: what became of jobs, and what to do about it."""

from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._job_flags import DatabaseUrl, JobsArgument, QueueUrl, database_errors
from ephemera.cli._progress import progress_bar
from ephemera.cli._screens import screen
from ephemera.operations.formatting import format_count

_MOST_ERROR = 100  # characters of an error in a table
_COLOURS = {"done": "green", "running": "cyan", "failed": "red", "dead": "red", "cancelled": "yellow"}

JobId = Annotated[str, typer.Argument(help="The job's id.", metavar="ID", envvar="EPHEMERA_JOB")]
JobIds = Annotated[list[str], typer.Argument(help="The ids of jobs.", metavar="ID...", envvar="EPHEMERA_JOB")]
SomeIds = Annotated[
    list[str] | None, typer.Argument(help="The ids of jobs.", metavar="ID...", envvar="EPHEMERA_JOB")
]
States = Annotated[
    list[str],
    flag("--state", "waiting, running, done, failed, cancelled or dead; may be given several times."),
]
Kind = Annotated[str | None, flag("--kind", "Only jobs of this kind: the name of their function.")]
Limit = Annotated[int, flag("--limit", "How many to show, the newest first.", min=1, max=10_000)]
Wait = Annotated[bool, flag("--wait", "Wait for the job's end.")]
AllDead = Annotated[bool, flag("--all-dead", "Retry every dead job, a thousand at the most.")]


def list_jobs(
    name: JobsArgument,
    database_url: DatabaseUrl,
    states: States = [],  # noqa: B006 - typer copies it
    kind: Kind = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """Show jobs as SQL has them, the newest first."""
    from ephemera.operations.inspect import list_jobs
    from ephemera.patterns.jobs import JOB_STATES

    for state in states:
        if state not in JOB_STATES:
            raise typer.BadParameter(f"{state!r} is none of {', '.join(JOB_STATES)}", param_hint="--state")
    with database_errors(), Console(stderr=True).status("Looking at jobs"):
        found = run(list_jobs(name, database_url, states=states, kind=kind, limit=limit))
    if json:
        _as_json(found)
    elif not found:
        typer.echo("There is no such job.")
    else:
        _table(found)


def show(
    name: JobsArgument, job_id: JobId, database_url: DatabaseUrl, wait: Wait = False, json: AsJson = False
) -> None:
    """Show one job: its state, its arguments, its steps, its result or its error."""
    from ephemera.operations.inspect import get_job

    with database_errors(), Console(stderr=True).status("Looking at the job") as status:

        def watch(row: Any) -> None:
            steps = f"{format_count(row.steps, 'step')} done, the last: {row.step or 'none'}"
            status.update(Text(f"{row.kind} is {row.state}, {steps}"))  # one may be named "[x]", or ":x:"

        found = run(get_job(name, database_url, job_id, watch if wait else None))
    if json:
        _as_json(found)
    else:
        _details(found)
    if wait and found.job.state != "done":
        raise typer.Exit(1)


def retry(
    name: JobsArgument,
    url: Url,
    database_url: DatabaseUrl,
    job_ids: SomeIds = None,
    all_dead: AllDead = False,
    queue_url: QueueUrl = None,
    json: AsJson = False,
) -> None:
    """Have failed, dead or cancelled jobs go on from their last step, with all their attempts before them."""
    if bool(job_ids) == all_dead:
        raise typer.BadParameter("give ids, or --all-dead", param_hint="ID... / --all-dead")
    _change("retry", name, (database_url, url, queue_url), job_ids or [], json)


def cancel(
    name: JobsArgument,
    job_ids: JobIds,
    url: Url,
    database_url: DatabaseUrl,
    queue_url: QueueUrl = None,
    json: AsJson = False,
) -> None:
    """End jobs that wait or run; who runs one is told within about a second."""
    _change("cancel", name, (database_url, url, queue_url), job_ids, json)


def _change(
    what: Literal["retry", "cancel"],
    jobs: Any,
    where: tuple[str, str, str | None],
    job_ids: list[str],
    json: bool,
) -> None:
    from ephemera.operations.inspect import JobServers, change_jobs

    with database_errors(), progress_bar() as tell:
        done = run(
            change_jobs(
                jobs, JobServers(*where), what, job_ids, lambda now, total: tell(f"{what} jobs", now, total)
            )
        )
    if json:
        _as_json(done)
    else:
        word = {"retry": "put back in its queue", "cancel": "cancelled"}[what]
        for row in done:
            typer.echo(f"{row.id} ({row.kind}) was {word}.")
        if not done:
            typer.echo("There is no dead job.")


def _table(found: Any) -> None:
    table = Table("id", "kind", "state", "attempts", "steps", "last step", "created (UTC)", "error")
    for row in found:
        error = (row.error or "").partition("\n")[0]
        table.add_row(
            row.id, escape(row.kind), _coloured(row.state), str(row.attempts), str(row.steps),
            escape(row.step or ""), f"{row.created_at:%Y-%m-%d %H:%M:%S}", escape(error[:_MOST_ERROR]),
        )  # fmt: skip
    screen().print(table)


def _details(found: Any) -> None:
    row, console = found.job, screen()
    facts = msgspec.to_builtins(row)
    for name, value in facts.items():
        if value is not None and name != "state":
            console.print(f"[bold]{name:>12}[/]  {escape(_plain(value))}", highlight=False)
        elif name == "state":
            console.print(f"[bold]{name:>12}[/]  {_coloured(row.state)}")
    if found.steps:
        table = Table("step", "result")
        for step, result in found.steps.items():
            table.add_row(escape(step), escape(bytes(result).decode()[:_MOST_ERROR]))
        console.print(table)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _coloured(state: str) -> str:
    return f"[{_COLOURS.get(state, 'default')}]{state}[/]"


def _as_json(found: Any) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(found)))


_SQL = "--database-url postgresql://db.internal/service"
_BOTH = f"--url redis://cache.internal {_SQL}"
_ID = "018e9a1f-b3c2-7654-9abc-def012345678"
COMMANDS = (
    Command(
        "jobs list",
        list_jobs,
        examples=(
            ("the newest jobs", f"myservice.jobs:JOBS {_SQL}"),
            ("what was given up, for a machine", f"myservice.jobs:JOBS {_SQL} --state dead --json"),
        ),
    ),
    Command(
        "jobs show",
        show,
        examples=(
            ("one job", f"myservice.jobs:JOBS {_ID} {_SQL}"),
            ("when it has ended", f"myservice.jobs:JOBS {_ID} {_SQL} --wait"),
        ),
        exits={1: "failed, or waited for a job that did not succeed"},
    ),
    Command(
        "jobs retry",
        retry,
        examples=(
            ("one job", f"myservice.jobs:JOBS {_ID} {_BOTH}"),
            ("all that were given up", f"myservice.jobs:JOBS {_BOTH} --all-dead"),
        ),
    ),
    Command("jobs cancel", cancel, examples=(("one job", f"myservice.jobs:JOBS {_ID} {_BOTH}"),)),
)
