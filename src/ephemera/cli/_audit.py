"""`ephemera audit`: a live server against the catalogues of those who use it."""

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
from ephemera.operations.survey import SAMPLE_SIZE, SurveyOptions

_FAIL_ON = (
    "Kinds of findings that make the exit code 1, comma-separated: "
    + ", ".join(KINDS)
    + "; or problems, warnings (and problems), any."
)


def audit(
    url: Url,
    catalogue: Annotated[
        list[Catalogue],
        flag(
            "--catalogue",
            "What the server should hold, as module:object or a built-in system; may be given several times.",
            metavar="NAME",
            parser=load_catalogue,
        ),
    ],
    role: Annotated[
        Role | None,
        flag("--role", "The one role that this server carries.", show_default="both"),
    ] = None,
    budget: Annotated[
        float, flag("--budget", "The time it may take: 30s, 5m.", metavar="TIME", parser=seconds)
    ] = "30s",  # type: ignore[assignment] # the parser takes it
    sample: Annotated[
        int, flag("--sample", "Keys of each space that are looked at; 0: names alone.", min=0)
    ] = SAMPLE_SIZE,
    no_contents: Annotated[
        bool, flag("--no-contents", "Do not read what the sampled keys hold to see if it can be decoded.")
    ] = False,
    cursor: Annotated[
        str | None, flag("--cursor", "Continue where an earlier audit stopped.", show_default="the beginning")
    ] = None,
    fail_on: Annotated[
        list[str] | None, flag("--fail-on", _FAIL_ON, metavar="KIND", show_default="nothing")
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare what is on a server with what its catalogues declare.

    Shows unknown keys by shape, declared spaces without keys, wrong types, keys without an end or with too
    long a life, sizes with their margins, large keys, streams and their groups, values that cannot be
    decoded, and whether the server's eviction and persistence suit the roles it carries.

    It only reads: all names by SCAN, and a random sample of each space. The report says what was not seen,
    from where to continue, and by how much the server's own statistics rose. Keys of sensitive spaces and
    values are never shown. A redis+cluster:// URL means all of its masters, with read_from=replicas its
    replicas.
    """
    failing = _kinds(fail_on or [])
    plan = SurveyOptions(sample=sample, budget=budget, cursor=cursor, contents=not no_contents)
    with progress_bar() as progress:
        report = run(audit_server(url, catalogue, plan, role=role, on_progress=progress))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        show(report)
    if report.coverage.lost or any(finding.kind in failing for finding in report.findings):
        raise typer.Exit(1)


def _kinds(words: list[str]) -> set[str]:
    try:
        return parse_kinds([kind for word in words for kind in word.replace(",", " ").split()])
    except ValueError as unknown:
        problem = f"{unknown} is no kind of finding; there are {', '.join(KINDS)}, problems, warnings, any"
        raise typer.BadParameter(problem, param_hint="--fail-on") from None


_HERE = "--url redis://cache.internal --catalogue myservice.keys:catalogue"

COMMAND = Command(
    "audit",
    audit,
    examples=(
        ("what is on a server", _HERE),
        ("a nightly job that fails when keys are undeclared or endless", f"{_HERE} --fail-on unknown,no-ttl"),
        ("a huge server, in portions", f"{_HERE} --budget 5m --cursor 1874@9f3c21ab"),
        (
            "the replicas of a cluster",
            "--url 'redis+cluster://cache.internal?read_from=replicas' --catalogue myservice.keys:catalogue",
        ),
    ),
    exits={1: "failed, lost a server on the way, or found a kind of --fail-on"},
)
