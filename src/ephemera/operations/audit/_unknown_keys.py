"""Undeclared keys: their shapes and sizes, and the libraries that write them.

Examples are shown unless they may be secrets, or share a prefix with a sensitive keyspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypedDict

from ephemera.keyspace import Classifier, Keyspace, Role, Template
from ephemera.operations.audit._report import Finding, UnknownKeys, UnknownShape, make_finding
from ephemera.operations.audit._servers import KeyUse
from ephemera.operations.formatting import format_count, format_keys
from ephemera.operations.libraries import Identified, SeenKey, confirmed, identify_shape, signs_of
from ephemera.operations.survey import Interval, SampledKey, Survey, estimate_matches, estimate_sum

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
    """A finding, if there are undeclared keys that were not accepted."""
    open_shapes = [shape for shape in unknown.shapes if shape.accepted is None]
    keys = sum(shape.keys for shape in open_shapes)
    if keys:
        libraries = list(dict.fromkeys(shape.library for shape in open_shapes if shape.library))
        shapes = format_count(len(open_shapes), "shape")
        by = f", some written by {', '.join(libraries)}" if libraries else ""
        yield make_finding(
            "unknown",
            f"{format_count(keys, 'undeclared key')} of {shapes}{by}",
            "declare them, or find out what writes them",
            ["ephemera infer --url URL > keys.py", *(["ephemera adopt --url URL"] if libraries else [])],
            keys=Interval(keys, keys, keys),
            examples=[shape.pattern or (shape.reason or "") for shape in open_shapes[:_MAX_EXAMPLES]],
        )


def undeclared_uses(unknown: UnknownKeys) -> list[KeyUse]:
    """What the undeclared keys need of their server."""
    return [
        KeyUse(shape.pattern or (shape.reason or ""), shape.role, shape.permanent) for shape in unknown.shapes
    ]


def _shapes(result: Survey, sensitive: set[str]) -> list[UnknownShape]:
    shapes, others = result.shapes.shapes(), result.shapes.undeclarable()
    templates = [shape.template for shape in shapes]
    inspected = _inspected(result, templates)
    examples = [*(shape.examples for shape in shapes), *(each.examples for each in others)]
    found = confirmed(_identify(result, each) for each in examples)
    fitting = [
        UnknownShape(
            pattern=shape.pattern,
            hash_tag=shape.hash_tag,
            reason=None,
            keys=shape.count,
            examples=[] if shape.secret or _head(template) in sensitive else format_keys(shape.examples),
            **_seen(inspected[position], shape.count),
            **_writer(found[position]),
        )
        for position, (shape, template) in enumerate(zip(shapes, templates, strict=True))
    ]
    refused = [
        UnknownShape(
            pattern=None,
            reason=each.reason,
            keys=each.count,
            examples=format_keys(key for key in each.examples if not _starts_like(key, sensitive)),
            **_seen([result.examples[key] for key in each.examples if key in result.examples], each.count),
            **_writer(identified),
        )
        for each, identified in zip(others, found[len(shapes) :], strict=True)
    ]
    return sorted([*fitting, *refused], key=lambda shape: -shape.keys)


class _Writer(TypedDict):
    library: str | None
    purpose: str
    role: Role | None


class _Seen(TypedDict):
    types: list[str]
    size: Interval | None
    permanent: bool


def read_signs(key: SampledKey, content: Any) -> frozenset[str]:
    """Read what tells the library of an undeclared key; the content itself is not kept."""
    return signs_of(key.type, content)


def _identify(result: Survey, examples: Iterable[bytes]) -> Identified | None:
    inspected = (result.examples[key] for key in examples if key in result.examples)
    return identify_shape(SeenKey(key.key, key.type, key.content or ()) for key in inspected)


def _writer(found: Identified | None) -> _Writer:
    return _Writer(
        library=found.library.name if found else None,
        purpose=found.keys.purpose if found else "",
        role=found.keys.role if found else None,
    )


def _seen(keys: Sequence[SampledKey], count: int) -> _Seen:
    """What the inspected keys of a shape tell about all of them."""
    sizes = [key.size for key in keys if key.size is not None]
    return _Seen(
        types=sorted({key.type for key in keys}),
        size=estimate_sum(sizes, count) if sizes else None,
        permanent=any(key.ttl == -1 for key in keys),
    )


def _inspected(result: Survey, templates: Sequence[Template]) -> list[list[SampledKey]]:
    """The inspected keys by shape: those drawn for it, and those of the sample of all undeclared keys."""
    which = Classifier((template, position) for position, template in enumerate(templates))
    found: list[list[SampledKey]] = [[] for _ in templates]
    for key in ({key.key: key for key in result.unknown.keys} | result.examples).values():
        position = which(key.key)
        if position is not None:
            found[position].append(key)
    return found


def _head(template: Template) -> str:
    return template.literals[0].partition(":")[0]


def _starts_like(key: bytes, sensitive: set[str]) -> bool:
    return key.decode("utf-8", "replace").partition(":")[0] in sensitive
