"""`ephemera infer`: a catalogue for a server that nobody documented."""

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
    name: Annotated[
        str, flag("--catalogue-name", "What to call the catalogue.", metavar="NAME")
    ] = "inferred",
    budget: Annotated[
        float, flag("--budget", "The time it may take: 30s, 5m.", metavar="TIME", parser=seconds)
    ] = "30s",  # type: ignore[assignment] # the parser takes it
    sample: Annotated[int, flag("--sample", "Keys of each shape that are looked at.", min=1)] = SAMPLE_SIZE,
    json: AsJson = False,
) -> None:
    """Propose a catalogue as Python source, from the keys that are on a server.

    Ids, dates, uuids, hashes and the like in names become fields; kinds, types and lifetimes come from a
    random sample of each shape, and comments say what was seen. Nothing that looks like a secret is shown.

    An audit against the result finds nothing unknown, but for keys that no pattern can render: those are
    listed at its end, with the reason. It only reads, as the audit does.
    """
    with progress_bar() as progress:
        proposal = run(infer_catalogue(url, name, SurveyOptions(sample=sample, budget=budget), progress))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(_for_machines(proposal))))
    else:
        typer.echo(proposal.source, nl=False)
    typer.echo(_summary(proposal), err=True)


def _for_machines(proposal: Proposal) -> dict[str, object]:
    return {
        "name": proposal.name,
        "coverage": proposal.coverage,
        "declarations": proposal.keyspaces,
        "left_out": [
            {"reason": each.reason, "keys": each.count, "examples": format_keys(each.examples)}
            for each in proposal.left_out
        ],
        "source": proposal.source,
    }


def _summary(proposal: Proposal) -> str:
    keys = sum(declaration.keys for declaration in proposal.keyspaces)
    left = sum(each.count for each in proposal.left_out)
    lines = [f"{format_count(len(proposal.keyspaces), 'declaration')} for {format_count(keys, 'key')}"]
    if left:
        lines.append(f"{format_count(left, 'key')} cannot be declared; the end of the source says why")
    lines += [f"not seen: {each}" for each in proposal.coverage.not_seen]
    return "\n".join(lines)


COMMAND = Command(
    "infer",
    infer,
    examples=(
        ("a first catalogue", "--url redis://legacy.internal --catalogue-name legacy > keys.py"),
        ("a large server", "--url redis://legacy.internal --budget 5m --sample 500 > keys.py"),
        ("for a machine", "--url redis://legacy.internal --json"),
    ),
)
