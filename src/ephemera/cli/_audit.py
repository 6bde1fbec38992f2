"""`ephemera audit`: compare a live server with the catalogues of its users."""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ephemera.cli._audit_screen import show
from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._durations import seconds
from ephemera.cli._progress import progress_bar
from ephemera.errors import InvalidValue
from ephemera.keyspace import Catalogue, Role
from ephemera.operations.audit import (
    KINDS,
    Acceptance,
    AuditReport,
    as_html,
    as_junit,
    compare_reports,
    parse_kinds,
    read_acceptances,
    read_report,
)
from ephemera.operations.audit import audit as audit_server
from ephemera.operations.survey import BUDGET, SAMPLE_SIZE, SurveyOptions

_PROJECT = Path("pyproject.toml")
_FAIL_ON = (
    "Kinds of findings that cause exit code 1, comma-separated: "
    + ", ".join(KINDS)
    + "; or problems, warnings (and problems), any."
)


def audit(
    url: Url,
    catalogue: Annotated[
        list[Catalogue] | None,
        flag(
            "--catalogue",
            "A catalogue of the server, by name or module:object; repeatable. Without one, keys appear by "
            "the library that writes them, or by shape.",
            metavar="NAME",
            parser=load_catalogue,
        ),
    ] = None,
    neighbour: Annotated[
        list[Catalogue] | None,
        flag(
            "--neighbour",
            "A catalogue of another service on the server: its keys are known, but not judged; repeatable.",
            metavar="NAME",
            parser=load_catalogue,
            show_default="none",
        ),
    ] = None,
    role: Annotated[
        Role | None,
        flag("--role", "The only role that this server carries.", show_default="both"),
    ] = None,
    budget: Annotated[
        float,
        flag("--budget", "The time limit: 30s, 5m.", metavar="TIME", parser=seconds, show_default="30s"),
    ] = BUDGET,
    sample: Annotated[
        int, flag("--sample", "Keys inspected per keyspace; 0: names only.", min=0)
    ] = SAMPLE_SIZE,
    no_contents: Annotated[bool, flag("--no-contents", "Do not read the contents of sampled keys.")] = False,
    slow_log: Annotated[
        bool, flag("--slow-log", "Also group the slow log by command and keyspace; needs SLOWLOG GET.")
    ] = False,
    cursor: Annotated[
        str | None, flag("--cursor", "Resume where an earlier audit stopped.", show_default="the beginning")
    ] = None,
    fail_on: Annotated[
        list[str] | None, flag("--fail-on", _FAIL_ON, metavar="KIND", show_default="nothing")
    ] = None,
    accept: Annotated[
        Path,
        flag("--accept", "A TOML file with accepted findings, in tool.ephemera.accept.", metavar="FILE"),
    ] = _PROJECT,
    against: Annotated[
        Path | None,
        flag("--against", "An earlier report (--json) to compare with.", metavar="FILE", show_default="none"),
    ] = None,
    junit: Annotated[
        Path | None, flag("--junit", "Also write JUnit XML to a file.", metavar="FILE", show_default="none")
    ] = None,
    html: Annotated[
        Path | None,
        flag("--html", "Also write a self-contained HTML page.", metavar="FILE", show_default="none"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare what is on a server with what its catalogues declare.

    Shows undeclared keys by shape, keyspaces without keys, wrong types, keys without a TTL or with too long a
    TTL, sizes with their margin of error, large keys, streams and their groups, undecodable values, and
    whether the server's eviction and persistence suit its roles.

    It only reads: all names by SCAN, and a random sample of each keyspace. The report says what was not seen,
    where to resume, and by how much the server's own statistics rose. Values and keys of sensitive keyspaces
    are never shown. What you know and want to keep for now is accepted in pyproject.toml, with a reason and a
    date. A redis+cluster:// URL means all masters, with read_from=replicas their replicas.
    """
    failing = _kinds(fail_on or [])
    acceptances, earlier = _acceptances(accept), _earlier(against)
    options = SurveyOptions(sample=sample, budget=budget, cursor=cursor, contents=not no_contents)
    with progress_bar() as progress:
        report = run(
            audit_server(
                url,
                catalogue or [],
                options,
                role=role,
                neighbours=neighbour or (),
                acceptances=acceptances,
                slow_log=slow_log,
                on_progress=progress,
            )
        )
    if earlier is not None:
        report = msgspec.structs.replace(report, since=compare_reports(earlier, report))
    if junit is not None:
        junit.write_text(as_junit(report, failing or parse_kinds(["problems"])), encoding="utf-8")
    if html is not None:
        html.write_text(as_html(report), encoding="utf-8")
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        show(report)
    failed = any(each.kind in failing and each.accepted is None for each in report.findings)
    if report.coverage.lost or failed:
        raise typer.Exit(1)


def _acceptances(path: Path) -> list[Acceptance]:
    if path == _PROJECT and not path.exists():
        return []
    try:
        return read_acceptances(path)
    except (OSError, tomllib.TOMLDecodeError, InvalidValue) as problem:
        raise typer.BadParameter(f"{path}: {problem}", param_hint="--accept") from None


def _earlier(path: Path | None) -> AuditReport | None:
    try:
        return None if path is None else read_report(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as problem:
        message = f"{path} is not a report that `audit --json` printed: {problem}"
        raise typer.BadParameter(message, param_hint="--against") from None


def _kinds(values: list[str]) -> set[str]:
    try:
        return parse_kinds([kind for value in values for kind in value.replace(",", " ").split()])
    except ValueError as unknown:
        problem = f"{unknown} is not a kind of finding: {', '.join(KINDS)}, problems, warnings, any"
        raise typer.BadParameter(problem, param_hint="--fail-on") from None


_HERE = "--url redis://cache.internal --catalogue myservice.keys:catalogue"

COMMAND = Command(
    "audit",
    audit,
    examples=(
        ("any server, without a catalogue", "--url redis://legacy.internal"),
        ("what is on a server", _HERE),
        ("a nightly job that fails on undeclared keys or missing TTLs", f"{_HERE} --fail-on unknown,no-ttl"),
        (
            "growth since last week, and a report for the pipeline",
            f"{_HERE} --against last.json --junit audit.xml",
        ),
        ("a huge server, in parts", f"{_HERE} --budget 5m --cursor 1874@9f3c21ab"),
        (
            "the replicas of a cluster",
            "--url 'redis+cluster://cache.internal?read_from=replicas' --catalogue myservice.keys:catalogue",
        ),
    ),
    exits={1: "failure, lost connection, or a finding of --fail-on that is not accepted"},
)
