"""What an entry of `CACHES` says, and what this process has connected to its server."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from ephemera import blocking
from ephemera.adapters._loop_clients import LoopClients
from ephemera.adapters.django._serializers import Serializer, find_serializer
from ephemera.blocking import BlockingStore
from ephemera.wire import parse_url

_OPTIONS = {
    "serializer": "'json', 'pickle', or an object with dumps and loads",
    "when_down": "'raise', or 'miss' to treat an outage as an empty cache",
}


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
        """A store that connects when it is first used, also while its server is down."""
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
            "User, password, database and timeouts belong into the URL of LOCATION"
        )
    when_down = options.get("when_down", "raise")
    if when_down not in ("raise", "miss"):
        raise ImproperlyConfigured(f"CACHES: when_down is 'raise' or 'miss', not {when_down!r}")
    return CacheOptions(find_serializer(options.get("serializer", "json")), when_down == "raise")
