"""Undeclared keys: their shapes and sizes.

Examples are shown unless they look like secrets, or share a prefix with a sensitive keyspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ephemera.keyspace import Classifier, Keyspace, Template
from ephemera.operations.audit._report import Finding, UnknownKeys, UnknownShape, make_finding
from ephemera.operations.formatting import format_count, format_keys
from ephemera.operations.survey import Interval, Survey, estimate_matches, estimate_sum, looks_secret

_MAX_EXAMPLES = 5


def unknown_keys(result: Survey, keyspaces: Iterable[Keyspace[Any]]) -> UnknownKeys:
    """Summarize the undeclared keys."""
    sample = result.unknown
    sizes = [key.size for key in sample.keys if key.size is not None]
    without_ttl = sum(key.ttl == -1 for key in sample.keys)
    return UnknownKeys(
        keys=sample.count,
        sampled=len(sample.keys),
        size=estimate_sum(sizes, sample.count) if sizes else None,
        without_ttl=estimate_matches(without_ttl, len(sample.keys), sample.count) if sample.keys else None,
        shapes=_shapes(result, {_head(keyspace.template) for keyspace in keyspaces if keyspace.sensitive}),
    )


def unknown_findings(unknown: UnknownKeys) -> Iterator[Finding]:
    """A finding, if there are undeclared keys."""
    if unknown.keys:
        largest = unknown.shapes[:_MAX_EXAMPLES]
        yield make_finding(
            "unknown",
            f"{format_count(unknown.keys, 'undeclared key')} of {format_count(len(unknown.shapes), 'shape')}",
            "declare them, or find out what writes them; `ephemera infer` proposes declarations",
            keys=Interval(unknown.keys, unknown.keys, unknown.keys),
            examples=[shape.pattern or (shape.reason or "") for shape in largest],
        )


def _shapes(result: Survey, sensitive: set[str]) -> list[UnknownShape]:
    shapes = result.shapes.shapes()
    templates = [Template(shape.pattern, hash_tag=shape.hash_tag) for shape in shapes]
    types = _types(result, templates)
    fitting = [
        UnknownShape(
            pattern=shape.pattern,
            reason=None,
            keys=shape.count,
            examples=[] if shape.secret or _head(template) in sensitive else format_keys(shape.examples),
            types=sorted(types[position]),
        )
        for position, (shape, template) in enumerate(zip(shapes, templates, strict=True))
    ]
    others = [
        UnknownShape(
            pattern=None,
            reason=each.reason,
            keys=each.count,
            examples=[] if _hidden(each.examples, sensitive) else format_keys(each.examples),
            types=sorted(types[len(shapes)]),
        )
        for each in result.shapes.undeclarable()
    ]
    return sorted([*fitting, *others], key=lambda shape: -shape.keys)


def _types(result: Survey, templates: Sequence[Template]) -> list[set[str]]:
    """The types of the sampled keys by shape, the last for those that fit none."""
    which = Classifier((template, position) for position, template in enumerate(templates))
    types: list[set[str]] = [set() for _ in range(len(templates) + 1)]
    for key in result.unknown.keys:
        position = which(key.key)
        types[len(templates) if position is None else position].add(key.type)
    return types


def _head(template: Template) -> str:
    return template.literals[0].partition(":")[0]


def _hidden(keys: Iterable[bytes], sensitive: set[str]) -> bool:
    texts = [key.decode("utf-8", "replace") for key in keys]
    return looks_secret(*texts) or any(text.partition(":")[0] in sensitive for text in texts)
