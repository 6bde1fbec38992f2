"""`cache.lock(...)`: a lock under a key of the cache, with the interface of redis-py's and django-redis's.

It is one SET NX, and a release that compares the holder's token. It has no queue, no renewal and no fencing
token; `ephemera.Locks` on `store()` has all three.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ephemera.errors import LockLost, LockTimeout
from ephemera.wire import Script

if TYPE_CHECKING:
    from ephemera.adapters.django._cache import RedisCache

RAISE: Any = object()
"""In place of what a call returns while Redis is down: it raises, whatever the settings say."""
_RELEASE = Script.load("ephemera.adapters.django", "release")
_EXTEND = Script.load("ephemera.adapters.django", "extend")


class CacheLock:
    """A lock that one process at a time holds: `with cache.lock("report", timeout=60)`, or `async with`."""

    def __init__(
        self,
        cache: RedisCache,
        key: str,
        timeout: float | None,
        sleep: float,
        blocking_timeout: float | None,
        thread_local: bool,
    ) -> None:
        self._cache = cache
        self._key = key
        self._lifetime = () if timeout is None else ("PX", max(1, int(timeout * 1000)))
        self._sleep = sleep
        self._blocking_timeout = blocking_timeout
        self._held: Any = threading.local() if thread_local else SimpleNamespace()

    def acquire(self, blocking: bool = True, blocking_timeout: float | None = None) -> bool:
        """Acquire it, waiting at most `blocking_timeout` seconds; False when another still holds it."""
        token, end = secrets.token_hex(16), self._end(blocking_timeout)
        while not self._cache._now(self._try, RAISE, token):
            if not blocking or time.monotonic() + self._sleep > end:
                return False
            time.sleep(self._sleep)
        self._held.token = token
        return True

    async def aacquire(self, blocking: bool = True, blocking_timeout: float | None = None) -> bool:
        """As `acquire`, in async code."""
        token, end = secrets.token_hex(16), self._end(blocking_timeout)
        while not await self._cache._later(self._try, RAISE, token):
            if not blocking or time.monotonic() + self._sleep > end:
                return False
            await asyncio.sleep(self._sleep)
        self._held.token = token
        return True

    def release(self) -> None:
        """Release it; `LockLost` when it was no longer held."""
        self._check(self._cache._now(self._run, RAISE, _RELEASE, self._give_up_token()))

    async def arelease(self) -> None:
        """As `release`, in async code."""
        self._check(await self._cache._later(self._run, RAISE, _RELEASE, self._give_up_token()))

    def extend(self, seconds: float) -> None:
        """Let it end this many seconds from now; `LockLost` when it was no longer held."""
        self._check(self._cache._now(self._run, RAISE, _EXTEND, self._token, int(seconds * 1000)))

    async def aextend(self, seconds: float) -> None:
        """As `extend`, in async code."""
        extended = self._cache._later(self._run, RAISE, _EXTEND, self._token, int(seconds * 1000))
        self._check(await extended)

    def locked(self) -> bool:
        """Whether anyone holds it."""
        return bool(self._cache._now(self._exists, RAISE))

    def owned(self) -> bool:
        """Whether this object has acquired it, and not released it."""
        return bool(self._token)

    def __enter__(self) -> Self:
        if not self.acquire():
            raise self._timed_out()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        if not await self.aacquire():
            raise self._timed_out()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.arelease()

    async def _try(self, client: Any, token: str) -> Any:
        return await client.call("SET", self._key, token, "NX", *self._lifetime)

    async def _run(self, client: Any, script: Script, *args: Any) -> Any:
        return await client.run(script, (self._key,), args)

    async def _exists(self, client: Any) -> Any:
        return await client.call("EXISTS", self._key)

    def _end(self, blocking_timeout: float | None) -> float:
        limit = self._blocking_timeout if blocking_timeout is None else blocking_timeout
        return float("inf") if limit is None else time.monotonic() + limit

    @property
    def _token(self) -> str:
        return getattr(self._held, "token", "")

    def _give_up_token(self) -> str:
        token, self._held.token = self._token, ""
        return token

    def _check(self, done: Any) -> None:
        if not done:
            raise LockLost(self._key, 0, "its timeout passed, or this object did not acquire it")

    def _timed_out(self) -> LockTimeout:
        return LockTimeout(self._key, self._blocking_timeout or 0, "another", 0)
