"""Match keys with the declared libraries: one key with its type, or the names of a whole page at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache
from typing import NamedTuple

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
    by_content: list[Identified]


def identify(key: bytes, kind: str, fields: Collection[str] = ()) -> Identified | None:
    """Who wrote a key of this name and Redis type, whose JSON members have these fields."""
    name, index = key.decode("utf-8", "replace"), _index()
    if index.any_name.fullmatch(name):
        for expression, each in index.by_name:
            if kind in each.keys.types.split() and expression.fullmatch(name):
                return each
    for each in index.by_content:
        if kind in each.keys.types.split() and each.keys.fields <= set(fields):
            return each
    return None


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
    named = [each for each in every if not each.keys.fields]
    return _Index(
        re.compile("|".join(each.keys.expression for each in named), re.DOTALL),
        [(re.compile(each.keys.expression, re.DOTALL), each) for each in named],
        [each for each in every if each.keys.fields],
    )
