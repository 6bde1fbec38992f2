"""`ephemera jobs list|show|retry|cancel`: find jobs, retry or cancel them."""

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

_MAX_ERROR = 100  # characters of an error in a table
_COLOURS = {"done": "green", "running": "cyan", "failed": "red", "dead": "red", "cancelled": "yellow"}

JobId = Annotated[str, typer.Argument(help="The job's id.", metavar="ID", envvar="EPHEMERA_JOB")]
JobIds = Annotated[list[str], typer.Argument(help="Job ids.", metavar="ID...", envvar="EPHEMERA_JOB")]
SomeIds = Annotated[list[str] | None, typer.Argument(help="Job ids.", metavar="ID...", envvar="EPHEMERA_JOB")]
States = Annotated[
    list[str] | None,
    flag("--state", "waiting, running, done, failed, cancelled or dead; repeatable."),
]
Kind = Annotated[str | None, flag("--kind", "Only jobs of this kind: the name of their function.")]
Limit = Annotated[int, flag("--limit", "How many to show, the newest first.", min=1, max=10_000)]
Wait = Annotated[bool, flag("--wait", "Wait until the job has ended.")]
AllDead = Annotated[bool, flag("--all-dead", "Retry every dead job, at most a thousand.")]


def list_jobs(
    name: JobsArgument,
    database_url: DatabaseUrl,
    states: States = None,
    kind: Kind = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from ephemera.operations.inspect import list_jobs as read_jobs
    from ephemera.patterns.jobs import JOB_STATES

    for state in states or ():
        if state not in JOB_STATES:
            raise typer.BadParameter(f"{state!r} is not one of {', '.join(JOB_STATES)}", param_hint="--state")
    with database_errors(), Console(stderr=True).status("Reading jobs"):
        found = run(read_jobs(name, database_url, states=states or (), kind=kind, limit=limit))
    if json:
        _as_json(found)
    elif not found:
        typer.echo("No jobs found.")
    else:
        _table(found)


def show(
    name: JobsArgument, job_id: JobId, database_url: DatabaseUrl, wait: Wait = False, json: AsJson = False
) -> None:
    """Show one job: state, arguments, steps, result or error."""
    from ephemera.operations.inspect import get_job

    with database_errors(), Console(stderr=True).status("Reading the job") as status:

        def watch(row: Any) -> None:
            steps = f"{format_count(row.steps, 'step')} done, last: {row.step or 'none'}"
            status.update(Text(f"{row.kind} is {row.state}, {steps}"))  # a name may contain "[x]" or ":x:"

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
    """Retry failed, dead or cancelled jobs from their last step, with all attempts available again."""
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
    """Cancel jobs that wait or run; a worker stops within about a second."""
    _change("cancel", name, (database_url, url, queue_url), job_ids, json)


def _change(
    action: Literal["retry", "cancel"],
    jobs: Any,
    servers: tuple[str, str, str | None],
    job_ids: list[str],
    json: bool,
) -> None:
    from ephemera.operations.inspect import JobServers, change_jobs

    with database_errors(), progress_bar() as show_progress:
        done = run(
            change_jobs(
                jobs,
                JobServers(*servers),
                action,
                job_ids,
                lambda now, total: show_progress(f"{action} jobs", now, total),
            )
        )
    if json:
        _as_json(done)
    else:
        outcome = {"retry": "queued again", "cancel": "cancelled"}[action]
        for row in done:
            typer.echo(f"{row.id} ({row.kind}) was {outcome}.")
        if not done:
            typer.echo("There are no dead jobs.")


def _table(found: Any) -> None:
    table = Table("id", "kind", "state", "attempts", "steps", "last step", "created (UTC)", "error")
    for row in found:
        error = (row.error or "").partition("\n")[0]
        table.add_row(
            row.id, escape(row.kind), _coloured(row.state), str(row.attempts), str(row.steps),
            escape(row.step or ""), f"{row.created_at:%Y-%m-%d %H:%M:%S}", escape(error[:_MAX_ERROR]),
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
            table.add_row(escape(step), escape(bytes(result).decode()[:_MAX_ERROR]))
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
            ("dead jobs, as JSON", f"myservice.jobs:JOBS {_SQL} --state dead --json"),
        ),
    ),
    Command(
        "jobs show",
        show,
        examples=(
            ("one job", f"myservice.jobs:JOBS {_ID} {_SQL}"),
            ("once it has ended", f"myservice.jobs:JOBS {_ID} {_SQL} --wait"),
        ),
        exits={1: "failure, or the awaited job did not succeed"},
    ),
    Command(
        "jobs retry",
        retry,
        examples=(
            ("one job", f"myservice.jobs:JOBS {_ID} {_BOTH}"),
            ("all dead jobs", f"myservice.jobs:JOBS {_BOTH} --all-dead"),
        ),
    ),
    Command("jobs cancel", cancel, examples=(("one job", f"myservice.jobs:JOBS {_ID} {_BOTH}"),)),
)
