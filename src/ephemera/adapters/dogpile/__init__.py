"""dogpile.cache: a region backend whose mutex is our lock. Needs the extra `dogpile`.

    arguments = {"url": "redis://localhost:6379", "redis_expiration_time": 3600}
    region = make_region().configure("ephemera", expiration_time=60, arguments=arguments)

*Keys.* A value is a string under the region's key; with `redis_expiration_time` every write sets the TTL in
the same step. A lock is under `_lock{key}` (`lock_prefix`), with the keys of `ephemera.Locks` beside it.

*Single flight.* One process creates a value, the others wait for it or use the old one. The lock has a lease
that is renewed while the creator works, so it never expires under a slow creator, and never stays when a
process dies. Waiters are woken; they do not poll. A creator may release it in another thread, as
async runners do.

*Values.* JSON by default, since what Redis holds is untrusted input. `serializer="pickle"` among the
arguments is dogpile's own format. What JSON would change is refused; what cannot be decoded counts as
missing.

*When Redis is down.* Calls raise `ConnectionFailed` at once, or after the timeout of the URL.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from ephemera.errors import InvalidDeclaration, LockAlreadyHeld, LockLost, LockTimeout, MissingExtra

if importlib.util.find_spec("dogpile") is None:
    raise MissingExtra("ephemera.adapters.dogpile needs dogpile.cache", "dogpile", "dogpile.cache")

from dogpile.cache.api import (
    NO_VALUE,
    BytesBackend,
    CacheMutex,
    CantDeserializeException,
    DefaultSerialization,
)

from ephemera.adapters import _json_values as json_values
from ephemera.adapters._servers import SynchronousServer, url_of
from ephemera.blocking import Block
from ephemera.keyspace import Catalogue
from ephemera.patterns.locks import Locks

__all__ = ["EphemeraBackend", "EphemeraMutex"]


_logger = logging.getLogger("ephemera")
_LEASE = 30  # seconds; it is renewed three times in it
_NEEDLESS = ("thread_local_lock", "lock_sleep", "socket_keepalive")
"""Arguments of dogpile's Redis backend that mean nothing here: any thread may release, and none polls."""


class EphemeraMutex(CacheMutex):
    """The lock of one key, as dogpile uses it."""

    def __init__(self, server: SynchronousServer, locks: Locks, key: str, timeout: float | None) -> None:
        self._server = server
        self._locks = locks
        self._key = key
        self._timeout = timeout
        self._block: Block | None = None

    def acquire(self, wait: bool = True) -> bool:
        """Acquire the lock; False when another has it, without waiting or after the timeout."""
        bound = self._server.store.aio[self._locks]
        hold = bound.hold(key=self._key, timeout=self._timeout if wait else 0)
        block = Block(self._server.store, hold)
        try:
            block.enter()
        except LockTimeout:
            return False
        except LockAlreadyHeld:
            if wait:
                raise  # else this thread would wait for itself
            return False
        self._block = block
        return True

    def release(self) -> None:
        """Release it, in any thread; if it has been lost since, nothing is released."""
        block, self._block = self._block, None
        if block is None:
            raise RuntimeError(f"the lock of {self._key!r} is not acquired")
        with suppress(LockLost):
            block.leave(None)

    def locked(self) -> bool:
        """Whether anyone has it."""
        store = self._server.store
        return store.wait_regardless(store.aio[self._locks].holder(key=self._key)) is not None


class EphemeraBackend(BytesBackend):
    """The backend `ephemera`; it takes the arguments of `dogpile.cache.redis`, and `serializer`.

    Arguments:
        url: The URL of the server, a cluster or Sentinels; or `host`, `port`, `db`, `username`, `password`.
        serializer: "json" or "pickle".
        redis_expiration_time: Seconds after which Redis removes a value; longer than the region's expiration.
        distributed_lock: True by default; False: only the threads of a process wait for each other.
        lock_timeout: Seconds of a lease, 30 by default; a lock whose process died is free after that.
        lock_blocking_timeout: Seconds that a caller waits for another's value; without end by default.
        lock_prefix: What the keys of locks begin with.

    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Connect when it is first used."""
        given = dict(arguments)
        parts = (given.pop("host", "localhost"), given.pop("port", 6379), given.pop("db", 0))
        url = url_of(*parts, given.pop("username", None), given.pop("password", None))
        self._choose_serializer(given.pop("serializer", "json"))
        self._lifetime = _lifetime(given.pop("redis_expiration_time", 0))
        self._is_distributed = given.pop("distributed_lock", True)
        self._lock_timeout = given.pop("lock_blocking_timeout", None)
        catalogue = Catalogue("dogpile")
        self._locks = Locks(
            catalogue,
            f"{given.pop('lock_prefix', '_lock')}{{key}}",
            lease=timedelta(seconds=given.pop("lock_timeout", None) or _LEASE),
            purpose="One creator of a cached value",
        )
        self._server = SynchronousServer(given.pop("url", None) or url, catalogue)
        if unknown := set(given).difference(_NEEDLESS):
            _logger.warning("dogpile: unknown arguments are ignored: %s", ", ".join(sorted(unknown)))

    def _choose_serializer(self, chosen: str) -> None:
        if chosen not in ("json", "pickle"):
            raise InvalidDeclaration("dogpile", f"the serializer {chosen!r}", "choose 'json' or 'pickle'")
        is_json = chosen == "json"
        self.serializer = (
            partial(json_values.dumps, where="dogpile") if is_json else DefaultSerialization.serializer
        )
        self.deserializer = _load_json if is_json else DefaultSerialization.deserializer

    def get_mutex(self, key: str) -> EphemeraMutex | None:
        """The lock of a key, or None if threads alone are to be coordinated."""
        if not self._is_distributed:
            return None
        return EphemeraMutex(self._server, self._locks, key, self._lock_timeout)

    def get_serialized(self, key: str) -> Any:
        """The stored value, or `NO_VALUE`."""
        stored = self._server.call("GET", key)
        return NO_VALUE if stored is None else stored

    def get_serialized_multi(self, keys: Iterable[str]) -> Sequence[Any]:
        """The stored values, in one round trip."""
        found = self._server.call_all([("GET", key) for key in keys])
        return [NO_VALUE if stored is None else stored for stored in found]

    def set_serialized(self, key: str, value: bytes) -> None:
        """Store a value."""
        self._server.call("SET", key, value, *self._lifetime)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        """Store several values, in one round trip."""
        self._server.call_all([("SET", key, value, *self._lifetime) for key, value in mapping.items()])

    def delete(self, key: str) -> None:
        """Delete a value."""
        self._server.call("UNLINK", key)

    def delete_multi(self, keys: Iterable[str]) -> None:
        """Delete several values, in one round trip."""
        self._server.call_all([("UNLINK", key) for key in keys])

    def close(self) -> None:
        """Disconnect; a program that ends need not."""
        self._server.close()


def _lifetime(seconds: int) -> tuple[Any, ...]:
    return ("EX", seconds) if seconds else ()


def _load_json(stored: bytes) -> Any:
    try:
        return json_values.loads(stored)
    except ValueError as problem:
        raise CantDeserializeException(str(problem)) from problem
