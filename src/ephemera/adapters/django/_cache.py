"""The `CACHES` backend: Django's cache API on our connections, synchronous and asynchronous.

Every operation is written once, as a coroutine that awaits nothing but replies. The async methods await it on
the running loop's client; the sync methods run it in the calling thread, on a connection that the thread
drives itself. Instances are cheap, as Django makes one per thread and per async task: what is connected
belongs to the URL, and all instances of a process share it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.exceptions import ImproperlyConfigured

from ephemera.adapters._servers import PAGE, delete_keys, escaped, find_keys
from ephemera.adapters.django import _cache_operations as operations
from ephemera.adapters.django._cache_lock import RAISE, CacheLock
from ephemera.adapters.django._cache_server import MISSING, read_options, server_of
from ephemera.errors import ConnectionFailed

Operation = Callable[..., Coroutine[Any, Any, Any]]


class RedisCache(BaseCache):
    """The cache backend: `"BACKEND": "ephemera.adapters.django.RedisCache"`.

    Beyond Django's API it has `lock`, `ttl`, `pttl`, `persist`, `expire`, `pexpire`, `expire_at`,
    `pexpire_at`, `keys`, `iter_keys` and `delete_pattern`, as django-redis has them.
    """

    def __init__(self, location: Any, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._serializer, self._raises = read_options(params.get("OPTIONS", {}))
        self._server = server_of(location)

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> float | None:
        """Seconds, at least 0; None for a value that does not expire."""
        seconds = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return None if seconds is None else max(0, seconds)

    # Each pair runs one operation: in this thread, and on the running loop.

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """Read a value."""
        return self._now(self._get, default, key, default, version)

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """Read a value."""
        return await self._later(self._get, default, key, default, version)

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        nx: bool = False,
    ) -> Any:
        """Store a value; with `nx` only if there is none, and return whether it was stored."""
        if nx:
            return self.add(key, value, timeout, version)
        return self._now(operations.store, None, *self._entry(key, value, timeout, version))

    async def aset(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Store a value."""
        await self._later(operations.store, None, *self._entry(key, value, timeout, version))

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Store a value if there is none; False when there is one."""
        return bool(self._now(operations.add, False, *self._entry(key, value, timeout, version)))

    async def aadd(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Store a value if there is none; False when there is one."""
        return bool(await self._later(operations.add, False, *self._entry(key, value, timeout, version)))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give a value a new lifetime; False when there is none."""
        seconds = self.get_backend_timeout(timeout)
        return bool(self._now(operations.touch, False, self._key(key, version), seconds))

    async def atouch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give a value a new lifetime; False when there is none."""
        seconds = self.get_backend_timeout(timeout)
        return bool(await self._later(operations.touch, False, self._key(key, version), seconds))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Delete a value; False when there is none."""
        return bool(self._now(operations.command, 0, "UNLINK", self._key(key, version)))

    async def adelete(self, key: Any, version: int | None = None) -> bool:
        """Delete a value; False when there is none."""
        return bool(await self._later(operations.command, 0, "UNLINK", self._key(key, version)))

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Whether there is a value."""
        return bool(self._now(operations.command, 0, "EXISTS", self._key(key, version)))

    async def ahas_key(self, key: Any, version: int | None = None) -> bool:
        """Whether there is a value."""
        return bool(await self._later(operations.command, 0, "EXISTS", self._key(key, version)))

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """Read several values, in one round trip."""
        return self._found(self._now(operations.read_all, {}, self._keys(keys, version)))

    async def aget_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """Read several values, in one round trip."""
        return self._found(await self._later(operations.read_all, {}, self._keys(keys, version)))

    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """Store several values, in one round trip; each has its lifetime from the start."""
        self._now(operations.store_all, None, self._entries(data, timeout, version))
        return []

    async def aset_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """Store several values, in one round trip; each has its lifetime from the start."""
        await self._later(operations.store_all, None, self._entries(data, timeout, version))
        return []

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> Any:
        """Delete several values, in one round trip; returns how many there were, None without keys."""
        made = self._keys(keys, version)
        return self._now(operations.delete_all, 0, made) if made else None

    async def adelete_many(self, keys: Iterable[Any], version: int | None = None) -> Any:
        """Delete several values, in one round trip; returns how many there were, None without keys."""
        made = self._keys(keys, version)
        return await self._later(operations.delete_all, 0, made) if made else None

    def incr(
        self, key: Any, delta: int = 1, version: int | None = None, *, ignore_key_check: bool = False
    ) -> int:
        """Add to a number, atomically; its lifetime stays.

        When there is none, it raises `ValueError`; with `ignore_key_check` it starts at 0 then, and has the
        default lifetime.
        """
        if ignore_key_check:
            self.add(key, 0, version=version)
        return int(self._now(operations.increment, RAISE, self._serializer, self._key(key, version), delta))

    async def aincr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Add to a number, atomically; its lifetime stays. `ValueError` when there is none."""
        made = self._key(key, version)
        return int(await self._later(operations.increment, RAISE, self._serializer, made, delta))

    def ttl(self, key: Any, version: int | None = None) -> int | None:
        """Seconds that a value has left; None when it does not expire, 0 when there is none."""
        left = self.pttl(key, version)
        return None if left is None else round(left / 1000)

    async def attl(self, key: Any, version: int | None = None) -> int | None:
        """Seconds that a value has left; None when it does not expire, 0 when there is none."""
        left = await self.apttl(key, version)
        return None if left is None else round(left / 1000)

    def pttl(self, key: Any, version: int | None = None) -> int | None:
        """As `ttl`, in milliseconds."""
        return operations.lifetime_left(self._now(operations.command, 0, "PTTL", self._key(key, version)))

    async def apttl(self, key: Any, version: int | None = None) -> int | None:
        """As `attl`, in milliseconds."""
        left = await self._later(operations.command, 0, "PTTL", self._key(key, version))
        return operations.lifetime_left(left)

    def persist(self, key: Any, version: int | None = None) -> bool:
        """Remove the TTL of a value; False when it had none, or when there is no value."""
        return bool(self._now(operations.command, 0, "PERSIST", self._key(key, version)))

    def expire(self, key: Any, timeout: Any, version: int | None = None) -> bool:
        """As `touch`."""
        return self.touch(key, timeout, version)

    def pexpire(self, key: Any, timeout: Any, version: int | None = None) -> bool:
        """As `touch`, in milliseconds."""
        return self.touch(key, timeout if timeout in (None, DEFAULT_TIMEOUT) else timeout / 1000, version)

    def expire_at(self, key: Any, when: datetime | float, version: int | None = None) -> bool:
        """Let a value expire at a time, a `datetime` or seconds since 1970; False when there is none."""
        seconds = when.timestamp() if isinstance(when, datetime) else when
        return self.pexpire_at(key, int(seconds * 1000), version)

    def pexpire_at(self, key: Any, when: datetime | int, version: int | None = None) -> bool:
        """As `expire_at`, in milliseconds since 1970."""
        milliseconds = int(when.timestamp() * 1000) if isinstance(when, datetime) else when
        return bool(self._now(operations.command, 0, "PEXPIREAT", self._key(key, version), milliseconds))

    def lock(
        self,
        key: Any,
        version: int | None = None,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
    ) -> CacheLock:
        """A lock for a `with` or `async with` block, or for `acquire` and `release`.

        Args:
            key: A key of the cache.
            version: Its version.
            timeout: Seconds after which it is free again even if its holder has not released it. Without it,
                a holder that crashed keeps it.
            sleep: Seconds between two attempts.
            blocking_timeout: Seconds to wait for it at most; a `with` statement then raises `LockTimeout`.
            thread_local: False if another thread than the one that acquired it is to release it.

        """
        return CacheLock(self, self._key(key, version), timeout, sleep, blocking_timeout, thread_local)

    def keys(self, search: str = "*", version: int | None = None, itersize: int = PAGE) -> list[str]:
        """The keys that match a pattern, in any order; a scan of the whole server, `itersize` at a time."""
        found = self._scan(find_keys, [], self._pattern(search, version), itersize)
        head = str(self.make_key("", version=version))
        return [each.decode("utf-8", "replace").removeprefix(head) for each in found]

    def iter_keys(self, search: str = "*", version: int | None = None, itersize: int = PAGE) -> Iterator[str]:
        """As `keys`, one by one."""
        return iter(self.keys(search, version, itersize))

    def delete_pattern(self, pattern: str, version: int | None = None, itersize: int = PAGE) -> int:
        """Delete the values whose keys match a pattern, and return how many; a scan of the whole server."""
        return int(self._scan(delete_keys, 0, self._pattern(pattern, version), itersize))

    async def adelete_pattern(self, pattern: str, version: int | None = None, itersize: int = PAGE) -> int:
        """Delete the values whose keys match a pattern, and return how many; a scan of the whole server."""
        return int(await self._later(delete_keys, 0, self._pattern(pattern, version), itersize))

    def clear(self) -> None:
        """Delete the values of all versions with this cache's KEY_PREFIX, and no other key."""
        self._scan(delete_keys, 0, self._pattern("*", "*"))

    async def aclear(self) -> None:
        """Delete the values of all versions with this cache's KEY_PREFIX, and no other key."""
        await self._later(delete_keys, 0, self._pattern("*", "*"))

    def disconnect(self) -> None:
        """Close what synchronous code of this process has connected to the server; the next use connects."""
        self._server.disconnect()

    def _now(self, operation: Operation, fallback: Any, *args: Any) -> Any:
        """Run an operation in this thread; while Redis is down the fallback, if the settings say so."""
        store = self._server.store
        try:
            return store.complete(operation(store.client, *args))
        except ConnectionFailed:
            if self._raises or fallback is RAISE:
                raise
            return fallback

    async def _later(self, operation: Operation, fallback: Any, *args: Any) -> Any:
        """Run an operation on the running loop; while Redis is down the fallback, if the settings say so."""
        clients = self._server.clients
        try:
            return await operation(clients.current() or await clients.get(), *args)
        except ConnectionFailed:
            if self._raises or fallback is RAISE:
                raise
            return fallback

    def _scan(self, operation: Operation, fallback: Any, pattern: str, page: int = PAGE) -> Any:
        """Run an operation on all keys, on the store's loop; while Redis is down as `_now`."""
        store = self._server.store
        try:
            return store.wait_regardless(operation(store.aio.client(), pattern, page))
        except ConnectionFailed:
            if self._raises:
                raise
            return fallback

    async def _get(self, client: Any, key: Any, default: Any, version: int | None) -> Any:
        stored = await client.call("GET", self._key(key, version))
        if stored is None:
            return default
        value = self._serializer.loads(stored)
        return default if value is MISSING else value

    def _key(self, key: Any, version: int | None) -> str:
        return str(self.make_and_validate_key(key, version=version))

    def _keys(self, keys: Iterable[Any], version: int | None) -> dict[str, Any]:
        return {self._key(key, version): key for key in keys}

    def _entry(self, key: Any, value: Any, timeout: Any, version: int | None) -> tuple[Any, ...]:
        made = self._key(key, version)
        return made, self._serializer.dumps(value), self.get_backend_timeout(timeout)

    def _entries(self, data: Mapping[Any, Any], timeout: Any, version: int | None) -> list[tuple[Any, ...]]:
        return [self._entry(key, value, timeout, version) for key, value in data.items()]

    def _found(self, stored: dict[Any, bytes]) -> dict[Any, Any]:
        values = {key: self._serializer.loads(each) for key, each in stored.items()}
        return {key: value for key, value in values.items() if value is not MISSING}

    def _pattern(self, pattern: str, version: Any) -> str:
        """The pattern that keys of this cache match."""
        prefix = escaped(self.key_prefix)
        made = str(self.key_func(pattern, prefix, self.version if version is None else version))
        if "*" in pattern and "*" not in made:
            raise ImproperlyConfigured(
                "this KEY_FUNCTION leaves nothing of a key to search for; delete the keys one by one"
            )
        return made
