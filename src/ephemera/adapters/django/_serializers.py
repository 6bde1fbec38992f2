"""How the cache stores values: as JSON, or pickled where the settings say so.

Both store integers as digits, so that the server can count. A pickle from Redis runs whatever code its writer
put into it: choose it only for a server that only you can write to.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ephemera.errors import InvalidValue
from ephemera.keyspace import DECODE_ERRORS

_PICKLE = b"\x80"  # what pickles begin with since protocol 2

MISSING: Any = object()
"""Stands for what is not in the cache, and for what cannot be decoded."""


class Serializer(Protocol):
    """What stores values: one of ours, or that of `OPTIONS["serializer"]`."""

    def dumps(self, value: Any, /) -> bytes | int:
        """The value as it is stored."""

    def loads(self, stored: bytes, /) -> Any:
        """The stored value."""


class JsonSerializer:
    """JSON: what another program wrote is a miss, and no value can run code."""

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
        self._decode = msgspec.json.Decoder().decode

    def dumps(self, value: Any, /) -> bytes:
        """The value as JSON; `InvalidValue` when JSON cannot express it."""
        try:
            return self._encode(value).encode()
        except (TypeError, ValueError, RecursionError) as problem:
            given = f"a {type(value).__name__} ({problem}); convert it, or set OPTIONS['serializer']='pickle'"
            raise InvalidValue("CACHES", "what JSON can express", given) from problem

    def loads(self, stored: bytes, /) -> Any:
        """The stored value; `MISSING` when it is no JSON."""
        try:
            return self._decode(stored)
        except DECODE_ERRORS:
            return MISSING


class PickleSerializer:
    """Pickle, in the format of Django's own Redis backend and of django-redis."""

    def dumps(self, value: Any, /) -> bytes | int:
        """The value as a pickle; an integer as digits."""
        return value if type(value) is int else pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads(self, stored: bytes, /) -> Any:
        """The stored value."""
        if not stored.startswith(_PICKLE):
            try:
                return int(stored)
            except ValueError:
                pass  # a pickle of protocol 0 or 1
        return pickle.loads(stored)  # noqa: S301 - chosen in the settings


_OURS: dict[str, Callable[[], Serializer]] = {"json": JsonSerializer, "pickle": PickleSerializer}


def find_serializer(chosen: Any) -> Serializer:
    """The serializer of a setting: "json", "pickle", a dotted path, a class or an object."""
    if isinstance(chosen, str):
        chosen = _OURS.get(chosen) or import_string(chosen)
    found = chosen() if callable(chosen) else chosen
    if not hasattr(found, "dumps") or not hasattr(found, "loads"):
        raise ImproperlyConfigured(
            f"CACHES: the serializer {chosen!r} needs dumps and loads; or choose 'json' or 'pickle'"
        )
    serializer: Serializer = found
    return serializer
