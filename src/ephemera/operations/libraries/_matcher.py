"""Match keys with the declared libraries: one key with its type, or the names of a whole page at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ephemera.operations.libraries._jobs import JOB_LIBRARIES
from ephemera.operations.libraries._signature import KeySignature, Library
from ephemera.operations.libraries._web import WEB_LIBRARIES


class Identified(NamedTuple):
    """Who writes a key, and as what."""

    library: Library
    keys: KeySignature


class _Index(NamedTuple):
    """One expression that any name of a library fits, and the signatures in their order."""

    any_name: re.Pattern[str]
    by_name: list[tuple[re.Pattern[str], Identified]]
    by_content: list[tuple[re.Pattern[str], Identified]]
    contents: list[tuple[re.Pattern[bytes], KeySignature]]


class SeenKey(NamedTuple):
    """A key, its Redis type, and the signs in its content, as far as that was read."""

    name: bytes
    kind: str
    signs: Collection[str] = ()


def identify(key: bytes, kind: str, signs: Collection[str] = ()) -> Identified | None:
    """Who wrote a key of this name and Redis type, with these signs in its content (`signs_of`)."""
    name, index = key.decode("utf-8", "replace"), _index()
    if index.any_name.fullmatch(name):
        for expression, each in index.by_name:
            if kind in each.keys.types.split() and expression.fullmatch(name):
                return each
    for expression, each in index.by_content:
        if kind in each.keys.types.split() and each.keys.fits(signs) and expression.fullmatch(name):
            return each
    return None


def identify_shape(keys: Iterable[SeenKey]) -> Identified | None:
    """Who wrote keys of one shape; of several, one whose keys must not be lost, or are secret."""
    keys = list(keys)
    found = [each for key in keys if (each := identify(*key)) is not None]
    certain = [each for each in found if not each.keys.uniform or _is_uniform(each, found, keys)]
    return min(certain, key=lambda each: (each.keys.role != "queue", not each.keys.sensitive), default=None)


def _is_uniform(each: Identified, found: Sequence[Identified], keys: Sequence[SeenKey]) -> bool:
    fits = re.compile(each.keys.expression, re.DOTALL).fullmatch
    return found.count(each) > 1 and all(fits(key.name.decode("utf-8", "replace")) for key in keys)


def needs_content(key: bytes, kind: str) -> bool:
    """Whether the content of a key could tell its library, because its name does not."""
    name = key.decode("utf-8", "replace")
    wanted = (expression for expression, each in _index().by_content if kind in each.keys.types.split())
    return identify(key, kind) is None and any(expression.fullmatch(name) for expression in wanted)


def signs_of(kind: str, content: Any) -> frozenset[str]:
    """What in the value of a string, or in some members of a list or set, tells who wrote it."""
    if kind not in ("string", "list", "set", "zset") or content is None:
        return frozenset()
    values: list[bytes] = [content] if isinstance(content, bytes) else list(content)
    matched = {
        keys.content
        for expression, keys in _index().contents
        if kind in keys.types.split() and any(map(expression.search, values))
    }
    return frozenset(matched).union(*map(_json_fields, values))


def _json_fields(value: bytes) -> Iterable[str]:
    if value[:1] != b"{":
        return ()
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return ()
    return map(str, decoded) if isinstance(decoded, dict) else ()


def library_of(name: str) -> Library:
    """The library of this name."""
    return next(each for each in (*JOB_LIBRARIES, *WEB_LIBRARIES) if each.name == name)


def confirmed(found: Iterable[Identified | None]) -> list[Identified | None]:
    """The same, without those known by a weak name alone, of whose library there is no other key."""
    found = list(found)
    certain = {each.library.name for each in found if each is not None and not each.keys.weak}
    return [each if each is not None and each.library.name in certain else None for each in found]


def exact_names() -> list[str]:
    """The names that libraries write exactly so: `celery`, `unacked`, `rq:queues`."""
    signatures = (keys for library in (*JOB_LIBRARIES, *WEB_LIBRARIES) for keys in library.keys)
    return [glob for keys in signatures for glob in keys.names.split() if not set("*#") & set(glob)]


@cache
def _index() -> _Index:
    every = [
        Identified(library, keys) for library in (*JOB_LIBRARIES, *WEB_LIBRARIES) for keys in library.keys
    ]
    named = [each for each in every if not each.keys.needs_content]
    others = [each for each in every if each.keys.needs_content]
    return _Index(
        re.compile("|".join(each.keys.expression for each in named), re.DOTALL),
        [(re.compile(each.keys.expression, re.DOTALL), each) for each in named],
        [(re.compile(each.keys.expression, re.DOTALL), each) for each in others],
        [
            (re.compile(each.keys.content.encode(), re.DOTALL), each.keys)
            for each in others
            if each.keys.content
        ],
    )
