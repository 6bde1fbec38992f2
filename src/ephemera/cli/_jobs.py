"""`ephemera jobs ...`: find jobs, retry or cancel them; list schedules; list, pause and resume queues."""

from datetime import UTC, datetime
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
from ephemera.cli._screens import print_table, screen
from ephemera.operations.formatting import format_count, format_duration, format_latency

_MAX_ERROR = 100  # characters of an error in a table
_COLOURS = {"done": "green", "running": "cyan", "failed": "red", "dead": "red", "cancelled": "yellow"}

JobId = Annotated[str, typer.Argument(help="The job's id.", metavar="ID", envvar="EPHEMERA_JOB")]
JobIds = Annotated[list[str], typer.Argument(help="Job ids.", metavar="ID...", envvar="EPHEMERA_JOB")]
SomeIds = Annotated[list[str] | None, typer.Argument(help="Job ids.", metavar="ID...", envvar="EPHEMERA_JOB")]
QueueNames = Annotated[list[str], typer.Argument(help="Queues.", metavar="QUEUE...", envvar="EPHEMERA_QUEUE")]
States = Annotated[
    list[str] | None,
    flag("--state", "waiting, running, done, failed, cancelled or dead; repeatable."),
]
Kind = Annotated[str | None, flag("--kind", "Only jobs of this kind: the function's name, or its name=.")]
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


def schedules(name: JobsArgument, database_url: DatabaseUrl, json: AsJson = False) -> None:
    """List schedules with their next runs."""
    from ephemera.operations.inspect import list_schedules

    with database_errors(), Console(stderr=True).status("Reading schedules"):
        found = run(list_schedules(name, database_url))
    if json:
        _as_json(found)
        return
    if not found:
        typer.echo("No schedules found: a worker stores those that it declares when it starts.")
        return
    table = Table("schedule", "job", "runs", "next run (UTC)", "last run (UTC)", "last job")
    for row in found:
        table.add_row(
            escape(row.name), escape(row.kind), escape(row.definition), _moment(row.next_run_at),
            _moment(row.last_run_at), row.last_job_id or "",
        )  # fmt: skip
    print_table(table)


def queues(name: JobsArgument, database_url: DatabaseUrl, json: AsJson = False) -> None:
    """List queues: what is in them, and what ended in the last hour, with wait and run times.

    Times are medians and 95th percentiles: from being due to the start, and from the start to the end.
    """
    from ephemera.operations.inspect import list_queues

    with database_errors(), Console(stderr=True).status("Reading queues"):
        found = run(list_queues(name, database_url))
    if json:
        _as_json(found)
        return
    table = Table("queue", "state", "waiting", "delayed", "running", "ended in 1 h", "wait", "run", "limits")
    for row in found:
        state = "[yellow]paused[/]" if row.settings.paused else "open"
        counts = (row.waiting, row.delayed, row.running, sum(row.per_minute))
        times = (_times(row.wait), _times(row.run))
        table.add_row(
            escape(row.queue), state, *(f"{count:,}" for count in counts), *times, _limits(row.settings)
        )
    print_table(table)


def pause(
    name: JobsArgument,
    queue_names: QueueNames,
    url: Url,
    database_url: DatabaseUrl,
    queue_url: QueueUrl = None,
    json: AsJson = False,
) -> None:
    """Start no more jobs of these queues, on any worker; running jobs continue."""
    _set_paused(name, (database_url, url, queue_url), queue_names, json, paused=True)


def resume(
    name: JobsArgument,
    queue_names: QueueNames,
    url: Url,
    database_url: DatabaseUrl,
    queue_url: QueueUrl = None,
    json: AsJson = False,
) -> None:
    """Start the jobs of paused queues again."""
    _set_paused(name, (database_url, url, queue_url), queue_names, json, paused=False)


def _set_paused(
    jobs: Any, servers: tuple[str, str, str | None], names: list[str], json: bool, *, paused: bool
) -> None:
    from ephemera.operations.inspect import JobServers, set_paused

    for name in names:
        if name not in jobs.queues:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(jobs.queues)}", param_hint="QUEUE..."
            )
    with database_errors():
        found = run(set_paused(jobs, JobServers(*servers), names, paused=paused))
    if json:
        _as_json(found)
    else:
        for name in names:
            typer.echo(f"The queue {name} is {'paused' if paused else 'open'}.")


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
        changed = run(
            change_jobs(
                jobs,
                JobServers(*servers),
                action,
                job_ids,
                lambda now, total: show_progress(f"{action} jobs", now, total),
            )
        )
    if json:
        _as_json(changed.done)
    else:
        outcome = {"retry": "queued again", "cancel": "cancelled"}[action]
        for row in changed.done:
            typer.echo(f"{row.id} ({row.kind}) was {outcome}.")
        if not changed.done and not changed.refused:
            typer.echo("There are no dead jobs.")
    for problem in changed.refused:
        typer.echo(f"ephemera: {problem}", err=True)
    if changed.refused:
        raise typer.Exit(1)


def _table(found: Any) -> None:
    table = Table(
        "id", "kind", "state", "options", "attempts", "steps", "last step", "created (UTC)", "error"
    )
    for row in found:
        error = (row.error or "").partition("\n")[0]
        table.add_row(
            row.id, escape(row.kind), _coloured(row.state), _options(row), str(row.attempts), str(row.steps),
            escape(row.step or ""), _moment(row.created_at), escape(error[:_MAX_ERROR]),
        )  # fmt: skip
    print_table(table)


def _options(row: Any) -> str:
    """How a job was enqueued, if not by default."""
    options = [f"priority {row.priority}"] if row.priority else []
    if row.unique_key is not None:
        options.append("unique")
    if row.state == "waiting" and row.available_at > datetime.now(UTC):
        options.append(f"not before {_moment(row.available_at)}")
    return ", ".join(options)


def _times(percentiles: tuple[float, float] | None) -> str:
    return "" if percentiles is None else " / ".join(map(format_latency, percentiles))


def _limits(settings: Any) -> str:
    limits = [] if settings.max_running is None else [f"{settings.max_running} at once"]
    if settings.rate is not None:
        limits.append(f"{settings.rate[0]} in {format_duration(1000 * settings.rate[1].total_seconds())}")
    return ", ".join(limits)


def _moment(moment: Any) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


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
    Command("jobs queues", queues, examples=(("all queues", f"myservice.jobs:JOBS {_SQL}"),)),
    Command("jobs pause", pause, examples=(("one queue", f"myservice.jobs:JOBS export {_BOTH}"),)),
    Command("jobs resume", resume, examples=(("one queue", f"myservice.jobs:JOBS export {_BOTH}"),)),
    Command("jobs schedules", schedules, examples=(("all schedules", f"myservice.jobs:JOBS {_SQL}"),)),
)
