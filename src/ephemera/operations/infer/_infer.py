r"""Inference: from a server that nobody documented, a catalogue that declares every key on it.

    proposal = await infer("redis://legacy.internal")
    print(proposal.source)

The names are scanned twice: first for their shapes (`shapes`), then by those shapes for a fair sample of
each, whose types, lives and contents decide kind, type and lifetime (`proposing`). Like an audit it only
reads, keeps to a budget and says what it did not see.

**What it covers.** An audit against the proposal finds nothing unknown, if the budget was enough: for every
key that a pattern can render there is one among those proposed. What no pattern can render is listed with
the reason: bytes that are not UTF-8, control characters, `* ? [ ] \`, braces that are no hash tag, a
beginning that is no printable ASCII, a `%` that is not as Ephemera encodes values. One sort of key that
Ephemera itself can render may be left out, too, and is listed as well: a literal beside a field whose value
is empty or holds an encoded mark, as `v{major}.{minor}` with an empty major.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ephemera.keyspace import RESERVED, Catalogue, Keyspace, KeyspaceOptions, permanent
from ephemera.operations.audit._coverage import coverage_of
from ephemera.operations.audit._report import Coverage
from ephemera.operations.infer._content_types import sniff
from ephemera.operations.infer._pattern_writer import Shape
from ephemera.operations.infer._proposals import Declaration, propose
from ephemera.operations.infer._recognizer import looks_secret
from ephemera.operations.infer._source_writer import source
from ephemera.operations.inspect._formatting import shown_key
from ephemera.operations.inspect._key_shapes import Undeclarable
from ephemera.operations.inspect._survey import Plan, Progress, opened, survey

_FOR_SHAPES = 0.5  # of the budget


@dataclass(frozen=True)
class Proposal:
    """A proposed catalogue: its declarations, what they leave out, and all of it as Python."""

    name: str
    coverage: Coverage
    declarations: list[Declaration]
    left_out: list[Undeclarable]
    source: str


async def infer(
    url: str, name: str = "inferred", plan: Plan | None = None, progress: Progress = lambda *_: None
) -> Proposal:
    """A catalogue for the keys that are on a server."""
    plan = plan or Plan()
    began = time.monotonic()
    async with opened(url) as nodes:
        first = await survey(
            nodes, RESERVED, replace(plan, sample=0, budget=plan.budget * _FOR_SHAPES), progress=progress
        )
        shapes = first.shapes.found()
        provisional = _provisional(name, shapes)
        left = plan.budget - (time.monotonic() - began)
        second = await survey(
            nodes, [*RESERVED, *provisional], replace(plan, budget=left), lambda _: sniff, progress
        )
    by_space = {tally.space: tally for tally in second.tallies}
    declarations = [
        propose(shape, by_space[space].count, by_space[space].probes)
        for shape, space in zip(shapes, provisional, strict=True)
    ]
    left_out = [*_without_secrets(first.shapes.undeclarable()), *_uncovered(second.shapes.found())]
    coverage = coverage_of(second if first.complete else first)
    about = _about(coverage, second.names, [scan.facts.name for scan in second.scans])
    return Proposal(name, coverage, declarations, left_out, source(name, about, declarations, left_out))


def _provisional(name: str, shapes: Sequence[Shape]) -> list[Keyspace[Any]]:
    """Spaces of these shapes, to take samples by."""
    catalogue = Catalogue(name)
    spaces: list[Keyspace[Any]] = []
    for shape in shapes:
        about: KeyspaceOptions = {"lifetime": permanent(reason="not known yet"), "purpose": "to be looked at"}
        if shape.hash_tag is not None:
            about["hash_tag"] = shape.hash_tag
        spaces.append(catalogue.value(shape.pattern, bytes, **about))
    return spaces


def _uncovered(shapes: Iterable[Shape]) -> list[Undeclarable]:
    """What no proposed pattern covers: it appeared meanwhile, or is written as only its own pattern would."""
    reason = "came while the others were looked at, or has a % that only its own pattern writes"
    return [
        Undeclarable(f"{shape.pattern}: {reason}", shape.count, [] if shape.secret else shape.examples)
        for shape in shapes
    ]


def _without_secrets(left_out: Iterable[Undeclarable]) -> list[Undeclarable]:
    return [
        replace(each, examples=[key for key in each.examples if not looks_secret(shown_key(key))])
        for each in left_out
    ]


def _about(coverage: Coverage, names: int, servers: Sequence[str]) -> list[str]:
    lines = [f"Made from the {names:,} keys that were on {', '.join(servers)}."]
    lines += [f"Not seen: {each}." for each in coverage.not_seen]
    return [
        *lines,
        "",
        "Patterns, kinds and lifetimes are guesses from names and from a sample. Values are declared as",
        "the plain text or bytes that they are; for typed ones declare a msgspec.Struct, and let Ephemera",
        "write them.",
    ]
