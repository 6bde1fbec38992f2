"""A pytest plugin: in the tests of limits, the URLs of Redis name our storages."""

from __future__ import annotations

from typing import Any

import limits.aio.storage
import limits.storage
from limits._storage_scheme import SCHEMES

from ephemera.adapters.limits import AsyncEphemeraStorage, EphemeraStorage

_KINDS = ("redis", "redis+unix", "redis+cluster", "redis+sentinel")
_CLASSES = ("RedisStorage", "RedisClusterStorage", "RedisSentinelStorage")


def _arguments(uri: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    for name in ("implementation", "use_replicas"):  # of the clients that they use
        options.pop(name, None)
    # A busy machine pauses now and then.
    return uri.replace("redis", "ephemera", 1), {"timeout": 5, "connect_timeout": 10, **options}


class Sync(EphemeraStorage):
    """Ours, by the URLs of the suite."""

    STORAGE_SCHEME = list(_KINDS)  # noqa: RUF012 - limits declares it on instances

    def __init__(self, uri: str, **options: Any) -> None:
        uri, options = _arguments(uri, options)
        super().__init__(uri, **options)


class Async(AsyncEphemeraStorage):
    """Ours, by the URLs of the suite."""

    STORAGE_SCHEME = [f"async+{kind}" for kind in _KINDS]  # noqa: RUF012

    def __init__(self, uri: str, **options: Any) -> None:
        uri, options = _arguments(uri, options)
        super().__init__(uri, **options)


assert SCHEMES["redis"] is Sync
for _name in _CLASSES:
    setattr(limits.storage, _name, Sync)
    setattr(limits.aio.storage, _name, Async)
