"""A survey of a server, and a declaration for each shape of its keys from a sample of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from ephemera.keyspace import RESERVED
from ephemera.operations.audit import Coverage, coverage_of
from ephemera.operations.infer._content_types import detect_content
from ephemera.operations.infer._proposals import ProposedKeyspace, identify_writer, propose
from ephemera.operations.infer._source_writer import write_source
from ephemera.operations.libraries import confirmed
from ephemera.operations.survey import (
    ProgressCallback,
    SurveyOptions,
    Undeclarable,
    open_servers,
    survey,
)

_GUESSES = (
    "Patterns, kinds and lifetimes are guesses from names and from a sample. Values are declared as plain "
    "text or bytes; for typed values declare a msgspec.Struct, and let Ephemera write them."
)


@dataclass(frozen=True)
class Proposal:
    """A proposed catalogue: its keyspaces, the keys it leaves out, and its Python source."""

    name: str
    coverage: Coverage
    keyspaces: list[ProposedKeyspace]
    left_out: list[Undeclarable]
    source: str


async def infer(
    url: str,
    name: str = "inferred",
    options: SurveyOptions | None = None,
    on_progress: ProgressCallback = lambda *_: None,
) -> Proposal:
    """Propose a catalogue for the keys of a server; without options there is no time limit."""
    options = options or SurveyOptions(budget=math.inf)
    options = replace(options, sample=0, shape_sample=max(options.sample, 1))
    async with open_servers(url) as servers:
        result = await survey(
            servers, RESERVED, options, on_progress=on_progress, shape_reader=detect_content
        )
    shapes = result.shapes.shapes()
    sampled = [
        [result.examples[key] for _, key in dict.fromkeys(shape.sample) if key in result.examples]
        for shape in shapes
    ]
    writers = confirmed(map(identify_writer, sampled))
    proposed = [
        propose(shape, keys, writer) for shape, keys, writer in zip(shapes, sampled, writers, strict=True)
    ]
    left_out = [*result.shapes.undeclarable(), *result.shapes.uncovered()]
    coverage = coverage_of(result)
    notes = _notes(coverage, [scan.info.name for scan in result.scans])
    if not result.inspected:  # what was not looked at is a guess, too
        coverage = msgspec.structs.replace(coverage, complete=False)
        notes = ["INCOMPLETE: types, roles and lifetimes of some are guesses from their names.", "", *notes]
    return Proposal(name, coverage, proposed, left_out, write_source(name, notes, proposed, left_out))


def _notes(coverage: Coverage, servers: Sequence[str]) -> list[str]:
    seen = f"all {coverage.names:,}" if coverage.complete else f"{coverage.names:,} of the {coverage.keys:,}"
    return [
        *([] if coverage.complete else ["INCOMPLETE: other keys may not be declared.", ""]),
        f"Made from {seen} keys on {', '.join(servers)}.",
        *(f"Not seen: {each}." for each in coverage.not_seen),
        "",
        _GUESSES,
    ]
