"""cachelib: a cache backend, for cachelib itself and for what takes its caches. Needs the extra `cachelib`.

    cache = EphemeraCache("redis://localhost:6379", key_prefix="shop:")
    cache.set("answer", {"value": 42}, timeout=60)

*Keys.* The key with its prefix, a string. `add` and `set` set the TTL in the same step; a timeout of 0 stores
without one, as everywhere in cachelib.

*Values.* JSON by default, since what Redis holds is untrusted input. `serializer="pickle"` is the format of
cachelib's own `RedisCache`, so that both read each other's values; anyone who can write to the server can
then run code in this process. What JSON would change (a tuple, a key that is not text) is refused. What
cannot be decoded is a miss.

*When Redis is down.* Calls raise `ConnectionFailed` at once, or after the timeout of the URL.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ephemera.errors import EphemeraError, MissingExtra

if importlib.util.find_spec("cachelib") is None:
    raise MissingExtra("ephemera.adapters.cachelib needs cachelib", "cachelib", "cachelib")

from cachelib import BaseCache
from cachelib.serializers import RedisSerializer

from ephemera.adapters import _json_values as json_values
from ephemera.adapters._servers import SynchronousServer

__all__ = ["EphemeraCache", "JsonSerializer"]


class JsonSerializer:
    """Values as JSON: integers are digits, so that the server can count; what is not JSON is a miss."""

    def dumps(self, value: Any) -> bytes:
        """The value as JSON; `InvalidValue` when it would come back changed."""
        return json_values.dumps(value, "cachelib")

    def loads(self, stored: bytes) -> Any:
        """The stored value, or None."""
        try:
            return json_values.loads(stored)
        except ValueError:
            return None


SERIALIZERS: dict[str, Callable[[], Any]] = {"json": JsonSerializer, "pickle": RedisSerializer}


class EphemeraCache(BaseCache):
    """A cache on Redis or Valkey; all threads share it."""

    serializer: Any = JsonSerializer()

    def __init__(
        self,
        url: str = "redis://localhost:6379",
        *,
        default_timeout: int | timedelta = 300,
        key_prefix: str | Callable[[], str] | None = None,
        serializer: Any = None,
        ignore_delete_many_errors: bool = True,
        check_connection: bool = False,
    ) -> None:
        """Connect when it is first used.

        Args:
            url: The URL of the server, a cluster or Sentinels, with its options.
            default_timeout: Seconds that values are kept if `timeout` is not given; 0: forever.
            key_prefix: What keys begin with, or a function that returns it. Without one, `clear` empties the
                database.
            serializer: "json", "pickle", or an object with `dumps` and `loads`.
            ignore_delete_many_errors: Passed to cachelib; keys cannot fail to be deleted one by one.
            check_connection: Raise `RuntimeError` now if the server cannot be reached.

        """
        super().__init__(default_timeout, ignore_delete_many_errors)
        self.key_prefix = key_prefix or ""
        if serializer is not None:
            self.serializer = SERIALIZERS[serializer]() if isinstance(serializer, str) else serializer
        self._server = SynchronousServer(url)
        if check_connection:
            self._check_connection()

    def _check_connection(self) -> None:
        try:
            self._server.call("PING")
        except EphemeraError as problem:
            raise RuntimeError(f"could not connect to Redis server: {problem}") from problem

    def _key(self, key: Any) -> str:
        return f"{self._prefix()}{key}"

    def _prefix(self) -> str:
        return self.key_prefix if isinstance(self.key_prefix, str) else self.key_prefix()

    def _write(self, key: str, value: Any, timeout: Any) -> tuple[Any, ...]:
        seconds = self._normalize_timeout(timeout)
        lifetime = ("EX", seconds) if seconds > 0 else ()
        return ("SET", self._key(key), self.serializer.dumps(value), *lifetime)

    def _load(self, stored: bytes | None) -> Any:
        return None if stored is None else self.serializer.loads(stored)

    def get(self, key: str) -> Any:
        """The value, or None."""
        return self._load(self._server.call("GET", self._key(key)))

    def get_many(self, *keys: str) -> list[Any]:
        """The values, None for each that is missing, in one round trip."""
        return [self._load(each) for each in self._server.call_all(("GET", self._key(key)) for key in keys)]

    def set(self, key: str, value: Any, timeout: int | timedelta | None = None) -> bool:
        """Store a value."""
        return self._server.call(*self._write(key, value, timeout)) is not None

    def add(self, key: str, value: Any, timeout: int | timedelta | None = None) -> bool:
        """Store a value if there is none, with its TTL in the same step."""
        return self._server.call(*self._write(key, value, timeout), "NX") is not None

    def set_many(self, mapping: dict[str, Any], timeout: int | timedelta | None = None) -> list[Any]:
        """Store several values in one round trip."""
        self._server.call_all([self._write(key, value, timeout) for key, value in mapping.items()])
        return list(mapping)

    def delete(self, key: str) -> bool:
        """Delete a value; whether there was one."""
        return bool(self._server.call("UNLINK", self._key(key)))

    def delete_many(self, *keys: str) -> list[Any]:
        """Delete several values in one round trip; keys that were missing count as deleted."""
        self._server.call_all([("UNLINK", self._key(key)) for key in keys])
        return list(keys)

    def has(self, key: str) -> bool:
        """Whether there is a value."""
        return bool(self._server.call("EXISTS", self._key(key)))

    def clear(self) -> bool:
        """Delete all values with the prefix; without one, all keys of the database."""
        if prefix := self._prefix():
            return bool(self._server.delete_prefix(prefix))
        self._server.flush()
        return True

    def close(self) -> None:
        """Disconnect; a program that ends need not."""
        self._server.close()

    def inc(self, key: str, delta: int = 1) -> int:
        """Add to a number in one step; one that is missing counts as 0 and gets no TTL, as in cachelib."""
        return int(self._server.call("INCRBY", self._key(key), delta))

    def dec(self, key: str, delta: int = 1) -> int:
        """Subtract from a number in one step."""
        return self.inc(key, -delta)
