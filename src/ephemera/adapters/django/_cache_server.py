"""What an entry of `CACHES` says: how values are stored, and what this process has connected to its server.

Values are JSON, or pickled where the settings say so. JSON refuses what would come back as something else,
such as a tuple. Both store integers as digits, so that the server can count. A pickle from Redis runs
whatever code its writer put into it: choose it only for a server that only you can write to.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString

from ephemera import blocking
from ephemera.adapters import _json_values as json_values
from ephemera.adapters._servers import LoopClients
from ephemera.blocking import BlockingStore
from ephemera.wire import parse_url

_PICKLE = b"\x80"  # what pickles begin with since protocol 2

MISSING: Any = object()
"""Stands for what is not in the cache, and for what cannot be decoded."""

_OPTIONS = {
    "serializer": "'json', 'pickle', or an object with dumps and loads",
    "when_down": "'raise', or 'miss' to treat an outage as an empty cache",
}


class Serializer(Protocol):
    """What stores values: one of ours, or that of `OPTIONS["serializer"]`."""

    def dumps(self, value: Any, /) -> bytes | int:
        """The value as it is stored."""

    def loads(self, stored: bytes, /) -> Any:
        """The stored value."""


class JsonSerializer:
    """JSON: what is stored comes back equal; what another program wrote is a miss; no value can run code.

    Text that is marked as safe is stored as text, as `{% cache %}` does: it comes back without the mark.
    """

    def dumps(self, value: Any, /) -> bytes:
        """The value as JSON; `InvalidValue` when it would not come back equal and of the same types."""
        if type(value) is SafeString:
            value = value + ""  # adding plain text removes the mark
        return json_values.dumps(value, "CACHES")

    def loads(self, stored: bytes, /) -> Any:
        """The stored value; `MISSING` when it is not JSON."""
        try:
            return json_values.loads(stored)
        except ValueError:
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


class CacheServer:
    """What this process has connected to one URL, for all instances of a cache."""

    def __init__(self, url: str) -> None:
        parse_url(url)
        self._url = url
        self.clients = LoopClients(url)
        self.store = self._store()

    def disconnect(self) -> None:
        """Close the connections of synchronous code; those of a loop end with it."""
        closing, self.store = self.store, self._store()
        closing.close()

    def _store(self) -> BlockingStore:
        """A store that connects when it is first used, even while its server is down."""
        return blocking.connect(self._url, required=False)


_server_at = cache(CacheServer)


class CacheOptions(NamedTuple):
    """What `OPTIONS` says."""

    serializer: Serializer
    raises: bool
    """Whether an outage raises; if not, it is a miss."""


def server_of(location: Any) -> CacheServer:
    """The server of a `LOCATION`."""
    if isinstance(location, (list, tuple)) and len(location) == 1:
        location = location[0]
    if not isinstance(location, str) or not location:
        raise ImproperlyConfigured(
            f"CACHES: LOCATION is one URL, such as redis://localhost:6379/0, not {location!r}; "
            "replicas are found through Sentinel or the cluster"
        )
    return _server_at(location)


def read_options(options: dict[str, Any]) -> CacheOptions:
    """The `OPTIONS`, checked."""
    if unknown := options.keys() - _OPTIONS.keys():
        known = ", ".join(f"{each} ({means})" for each, means in _OPTIONS.items())
        raise ImproperlyConfigured(
            f"CACHES: OPTIONS has no {', '.join(sorted(unknown))}; it has {known}. "
            "User, password, database and timeouts belong in the URL of LOCATION"
        )
    when_down = options.get("when_down", "raise")
    if when_down not in ("raise", "miss"):
        raise ImproperlyConfigured(f"CACHES: when_down is 'raise' or 'miss', not {when_down!r}")
    return CacheOptions(find_serializer(options.get("serializer", "json")), when_down == "raise")
