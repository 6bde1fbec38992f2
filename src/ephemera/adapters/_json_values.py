"""Cached values as JSON: what is stored comes back equal and of the same types, or is refused.

JSON would turn a tuple into a list and the key 1 into "1", so a function would return something else from its
second call on. Such values are an error where they are stored.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from ephemera.errors import InvalidValue

_PLAIN = frozenset((str, int, bool, type(None)))
_encode = json.JSONEncoder(separators=(",", ":")).encode


def dumps(value: Any, where: str) -> bytes:
    """The value as JSON; `where` names the cache in the error."""
    try:
        if _is_exact(value):
            return _encode(value).encode()
    except (ValueError, RecursionError):
        pass
    raise InvalidValue(
        where,
        "what JSON can express: text, numbers, booleans, None, lists, and dicts with text keys",
        f"a {type(value).__name__} that is not, or that has something else in it; "
        "convert it, or set the option 'serializer' (in Django: in OPTIONS) to 'pickle' "
        "for a server that only you can write to",
    )


def loads(stored: bytes) -> Any:
    """The stored value; `ValueError` when it is not JSON."""
    try:
        return json.loads(stored)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _is_exact(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is list:
        return all(map(_is_exact, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_is_exact, value.values()))
    return kind is float and isfinite(value)
