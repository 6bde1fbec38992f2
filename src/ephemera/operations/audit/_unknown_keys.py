"""The keys that no catalogue declares: what they look like, and how much room they take.

Their examples are shown unless they look like secrets, or begin as the keys of a sensitive space do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ephemera.keyspace import Classifier, Keyspace, Template
from ephemera.operations.audit._findings import Finding, found
from ephemera.operations.audit._report import Unknown, UnknownShape
from ephemera.operations.infer._recognizer import looks_secret
from ephemera.operations.inspect._formatting import counted, shown_keys
from ephemera.operations.inspect._sampling import Interval, share_of, total_of
from ephemera.operations.inspect._survey import Survey

_MOST_EXAMPLES = 5


def state_of(seen: Survey, spaces: Iterable[Keyspace[Any]]) -> Unknown:
    """What was found of undeclared keys."""
    tally = seen.unknown
    sizes = [probe.size for probe in tally.probes if probe.size is not None]
    endless = sum(probe.ttl == -1 for probe in tally.probes)
    return Unknown(
        keys=tally.count,
        sampled=len(tally.probes),
        size=total_of(sizes, tally.count) if sizes else None,
        without_ttl=share_of(endless, len(tally.probes), tally.count) if tally.probes else None,
        shapes=_shapes(seen, {_head(space.template) for space in spaces if space.sensitive}),
    )


def findings_of(unknown: Unknown) -> Iterator[Finding]:
    """That there are such keys."""
    if unknown.keys:
        largest = unknown.shapes[:_MOST_EXAMPLES]
        yield found(
            "unknown",
            f"{counted(unknown.keys, 'key')} of {counted(len(unknown.shapes), 'shape')}, undeclared",
            "declare them, or find out who writes them; `ephemera infer` proposes declarations",
            keys=Interval(unknown.keys, unknown.keys, unknown.keys),
            examples=[shape.pattern or (shape.reason or "") for shape in largest],
        )


def _shapes(seen: Survey, sensitive: set[str]) -> list[UnknownShape]:
    shapes = seen.shapes.found()
    templates = [Template(shape.pattern, hash_tag=shape.hash_tag) for shape in shapes]
    types = _types(seen, templates)
    fitting = [
        UnknownShape(
            pattern=shape.pattern,
            reason=None,
            keys=shape.count,
            examples=[] if shape.secret or _head(template) in sensitive else shown_keys(shape.examples),
            types=sorted(types[place]),
        )
        for place, (shape, template) in enumerate(zip(shapes, templates, strict=True))
    ]
    others = [
        UnknownShape(
            pattern=None,
            reason=each.reason,
            keys=each.count,
            examples=[] if _hidden(each.examples, sensitive) else shown_keys(each.examples),
            types=sorted(types[len(shapes)]),
        )
        for each in seen.shapes.undeclarable()
    ]
    return sorted([*fitting, *others], key=lambda shape: -shape.keys)


def _types(seen: Survey, templates: Sequence[Template]) -> list[set[str]]:
    """The types of the sampled keys by shape, the last for those that fit none."""
    which = Classifier((template, place) for place, template in enumerate(templates))
    types: list[set[str]] = [set() for _ in range(len(templates) + 1)]
    for probe in seen.unknown.probes:
        place = which(probe.key)
        types[len(templates) if place is None else place].add(probe.type)
    return types


def _head(template: Template) -> str:
    return template.literals[0].partition(":")[0]


def _hidden(keys: Iterable[bytes], sensitive: set[str]) -> bool:
    texts = [key.decode("utf-8", "replace") for key in keys]
    return looks_secret(*texts) or any(text.partition(":")[0] in sensitive for text in texts)
