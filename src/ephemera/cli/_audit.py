"""`ephemera audit`: compare a live server with the catalogues of its users."""

from typing import Annotated

import msgspec
import typer

from ephemera.cli._audit_screen import show
from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._durations import seconds
from ephemera.cli._progress import progress_bar
from ephemera.keyspace import Catalogue, Role
from ephemera.operations.audit import KINDS, parse_kinds
from ephemera.operations.audit import audit as audit_server
from ephemera.operations.survey import BUDGET, SAMPLE_SIZE, SurveyOptions

_FAIL_ON = (
    "Kinds of findings that cause exit code 1, comma-separated: "
    + ", ".join(KINDS)
    + "; or problems, warnings (and problems), any."
)


def audit(
    url: Url,
    catalogue: Annotated[
        list[Catalogue],
        flag(
            "--catalogue",
            "A catalogue of the server, by name or module:object; repeatable.",
            metavar="NAME",
            parser=load_catalogue,
        ),
    ],
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
    cursor: Annotated[
        str | None, flag("--cursor", "Resume where an earlier audit stopped.", show_default="the beginning")
    ] = None,
    fail_on: Annotated[
        list[str] | None, flag("--fail-on", _FAIL_ON, metavar="KIND", show_default="nothing")
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare what is on a server with what its catalogues declare.

    Shows undeclared keys by shape, keyspaces without keys, wrong types, keys without a TTL or with too long a
    TTL, sizes with their margin of error, large keys, streams and their groups, undecodable values, and
    whether the server's eviction and persistence suit its roles.

    It only reads: all names by SCAN, and a random sample of each keyspace. The report says what was not seen,
    where to resume, and by how much the server's own statistics rose. Values and keys of sensitive keyspaces
    are never shown. A redis+cluster:// URL means all masters, with read_from=replicas their replicas.
    """
    failing = _kinds(fail_on or [])
    options = SurveyOptions(sample=sample, budget=budget, cursor=cursor, contents=not no_contents)
    with progress_bar() as progress:
        report = run(audit_server(url, catalogue, options, role=role, on_progress=progress))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        show(report)
    if report.coverage.lost or any(finding.kind in failing for finding in report.findings):
        raise typer.Exit(1)


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
        ("what is on a server", _HERE),
        ("a nightly job that fails on undeclared keys or missing TTLs", f"{_HERE} --fail-on unknown,no-ttl"),
        ("a huge server, in parts", f"{_HERE} --budget 5m --cursor 1874@9f3c21ab"),
        (
            "the replicas of a cluster",
            "--url 'redis+cluster://cache.internal?read_from=replicas' --catalogue myservice.keys:catalogue",
        ),
    ),
    exits={1: "failure, lost connection, or a finding of --fail-on"},
)
