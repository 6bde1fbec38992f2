"""Two surveys of a server, the first for the shapes of its keys, the second for a sample of each shape."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ephemera.keyspace import RESERVED, Catalogue, Keyspace, KeyspaceOptions, permanent
from ephemera.operations.audit import Coverage, coverage_of
from ephemera.operations.infer._content_types import detect_content
from ephemera.operations.infer._proposals import ProposedKeyspace, identify_writer, propose
from ephemera.operations.infer._source_writer import write_source
from ephemera.operations.libraries import confirmed
from ephemera.operations.survey import (
    ProgressCallback,
    Shape,
    SurveyOptions,
    Undeclarable,
    open_servers,
    survey,
)

_SHAPES_SHARE = 0.5  # of the budget


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
    started = time.monotonic()
    async with open_servers(url) as servers:
        for_shapes = replace(options, sample=0, budget=options.budget * _SHAPES_SHARE)
        first = await survey(servers, RESERVED, for_shapes, on_progress=on_progress)
        shapes = first.shapes.shapes()
        provisional = _provisional_keyspaces(name, shapes)
        remaining = replace(options, budget=options.budget - (time.monotonic() - started))
        second = await survey(
            servers, [*RESERVED, *provisional], remaining, lambda _: detect_content, on_progress
        )
    samples = {sample.keyspace: sample for sample in second.samples}
    sampled = [samples[keyspace] for keyspace in provisional]
    writers = confirmed(identify_writer(sample.keys) for sample in sampled)
    proposed = [
        propose(shape, sample.count, sample.keys, writer)
        for shape, sample, writer in zip(shapes, sampled, writers, strict=True)
    ]
    left_out = [*first.shapes.undeclarable(), *_uncovered(second.shapes.shapes())]
    coverage = coverage_of(second if first.complete else first)
    notes = _notes(coverage, [scan.info.name for scan in second.scans])
    return Proposal(name, coverage, proposed, left_out, write_source(name, notes, proposed, left_out))


def _provisional_keyspaces(name: str, shapes: Sequence[Shape]) -> list[Keyspace[Any]]:
    """Keyspaces of these shapes, to sample by."""
    catalogue = Catalogue(name)
    keyspaces: list[Keyspace[Any]] = []
    for shape in shapes:
        options: KeyspaceOptions = {"lifetime": permanent(reason="not known yet"), "purpose": "to be sampled"}
        if shape.hash_tag is not None:
            options["hash_tag"] = shape.hash_tag
        keyspaces.append(catalogue.value(shape.pattern, bytes, **options))
    return keyspaces


def _uncovered(shapes: Iterable[Shape]) -> list[Undeclarable]:
    """Keys that no proposed pattern covers."""
    reason = "written during the survey, or has a % that only its own pattern encodes"
    return [
        Undeclarable(f"{shape.pattern}: {reason}", shape.count, [] if shape.secret else shape.examples)
        for shape in shapes
    ]


def _notes(coverage: Coverage, servers: Sequence[str]) -> list[str]:
    seen = f"all {coverage.names:,}" if coverage.complete else f"{coverage.names:,} of the {coverage.keys:,}"
    return [
        *([] if coverage.complete else ["INCOMPLETE: other keys may not be declared.", ""]),
        f"Made from {seen} keys on {', '.join(servers)}.",
        *(f"Not seen: {each}." for each in coverage.not_seen),
        "",
        "Patterns, kinds and lifetimes are guesses from names and from a sample. Values are declared as",
        "plain text or bytes; for typed values declare a msgspec.Struct, and let Ephemera write them.",
    ]
