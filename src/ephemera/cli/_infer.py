"""`ephemera infer`: propose a catalogue for an undocumented server."""

import math
from typing import Annotated

import msgspec
import typer

from ephemera.cli._command import AsJson, Command, Url, flag, run
from ephemera.cli._durations import seconds
from ephemera.cli._progress import progress_bar
from ephemera.operations.formatting import format_count, format_keys
from ephemera.operations.infer import Proposal
from ephemera.operations.infer import infer as infer_catalogue
from ephemera.operations.survey import SAMPLE_SIZE, SurveyOptions


def infer(
    url: Url,
    name: Annotated[str, flag("--catalogue-name", "The name of the catalogue.", metavar="NAME")] = "inferred",
    budget: Annotated[
        float,
        flag("--budget", "A time limit: 30s, 5m.", metavar="TIME", parser=seconds, show_default="none"),
    ] = math.inf,
    sample: Annotated[int, flag("--sample", "Keys inspected per shape.", min=1)] = SAMPLE_SIZE,
    json: AsJson = False,
) -> None:
    """Propose a catalogue as Python source, from the keys on a server.

    Ids, dates, UUIDs, hashes and the like in names become fields; kinds, types and lifetimes come from a
    random sample of each shape, and comments describe it. Nothing that looks like a secret is shown.

    An audit against the result finds no unknown keys, except those that no pattern can render: they are
    listed at its end, with the reason. It only reads, like the audit. If a time limit does not suffice, the
    proposal says which part of the keys it was made from, and the exit code is 1.
    """
    with progress_bar() as progress:
        proposal = run(infer_catalogue(url, name, SurveyOptions(sample=sample, budget=budget), progress))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(_as_builtins(proposal))))
    else:
        typer.echo(proposal.source, nl=False)
    typer.echo(_summary(proposal), err=True)
    if not proposal.coverage.complete:
        raise typer.Exit(1)


def _as_builtins(proposal: Proposal) -> dict[str, object]:
    return {
        "name": proposal.name,
        "coverage": proposal.coverage,
        "keyspaces": proposal.keyspaces,
        "left_out": [
            {"reason": each.reason, "keys": each.count, "examples": format_keys(each.examples)}
            for each in proposal.left_out
        ],
        "source": proposal.source,
    }


def _summary(proposal: Proposal) -> str:
    keys = sum(proposed.keys for proposed in proposal.keyspaces)
    left = sum(each.count for each in proposal.left_out)
    lines = [f"{format_count(len(proposal.keyspaces), 'keyspace')} for {format_count(keys, 'key')}"]
    if left:
        lines.append(f"{format_count(left, 'key')} cannot be declared; see the end of the source")
    if not proposal.coverage.complete:
        seen = f"{proposal.coverage.names:,} of {proposal.coverage.keys:,}"
        advice = "" if proposal.coverage.lost else ": give a longer --budget, or none"
        lines.append(f"incomplete, made from {seen} keys{advice}")
    lines += [f"not seen: {each}" for each in proposal.coverage.not_seen]
    return "\n".join(lines)


COMMAND = Command(
    "infer",
    infer,
    examples=(
        ("a first catalogue", "--url redis://legacy.internal --catalogue-name legacy > keys.py"),
        ("a large server", "--url redis://legacy.internal --budget 5m --sample 500 > keys.py"),
        ("as JSON", "--url redis://legacy.internal --json"),
    ),
    exits={1: "failure, or a proposal from a part of the keys"},
)
