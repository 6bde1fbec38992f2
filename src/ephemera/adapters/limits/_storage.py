"""The storages of limits, synchronous and async: the same operations, each completed in its own way."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from limits.aio.storage import MovingWindowSupport as AsyncMovingWindow
from limits.aio.storage import SlidingWindowCounterSupport as AsyncSlidingWindowCounter
from limits.aio.storage import Storage as AsyncStorage
from limits.errors import ConfigurationError
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage

from ephemera.adapters._servers import LoopClients, delete_keys, escaped
from ephemera.adapters.limits import _operations as operations
from ephemera.blocking import connect
from ephemera.errors import EphemeraError, InvalidUrl
from ephemera.wire import parse_url

KINDS = (
    "ephemera",
    "ephemeras",
    "ephemera+unix",
    "ephemera+cluster",
    "ephemeras+cluster",
    "ephemera+sentinel",
    "ephemeras+sentinel",
)
"""The schemes: those of our URLs with `ephemera` in place of `redis`."""

Operation = Callable[..., Coroutine[Any, Any, Any]]


def server_url(uri: str, options: dict[str, Any]) -> str:
    """The URL for the wire; options of the storage that are not in its URL are added to it."""
    url = uri.removeprefix("async+").replace("ephemera", "redis", 1).replace("redis+unix", "unix", 1)
    options = dict(options)
    user, password = options.pop("username", ""), options.pop("password", "")
    if user or password:
        scheme, _, rest = url.partition("://")
        url = f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest.rpartition('@')[2]}"
    if master := options.pop("service_name", ""):
        url = f"{url.rstrip('/')}/{master}"
    if "+sentinel:" in url:
        options = _sentinel_credentials(url, options.pop("sentinel_kwargs", None) or {}, options)
    if options:
        url += ("&" if "?" in url else "?") + urlencode(options)
    try:
        parse_url(url)
    except InvalidUrl as problem:
        raise ConfigurationError(f"storage options or URL: {problem}") from problem
    return url


def _sentinel_credentials(url: str, own: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options, with credentials of the Sentinels: as in limits, their own or those of the servers."""
    parts = urlsplit(url)
    if {"sentinel_user", "sentinel_password"} & {*options, *parse_qs(parts.query, keep_blank_values=True)}:
        return options
    given = {"username": unquote(parts.username or ""), "password": unquote(parts.password or ""), **own}
    given["user"] = given.pop("username")
    return {**options, **{f"sentinel_{name}": value for name, value in given.items() if value}}


class _Operations:
    """The methods that limits calls; they return what `_complete` makes of an operation."""

    key_prefix: str
    base_exceptions = EphemeraError
    """What `wrap_exceptions` wraps."""

    def _complete(self, operation: Operation, *args: Any) -> Any:
        raise NotImplementedError

    def _key(self, key: str) -> str:
        return f"{self.key_prefix}:{key}"

    def _windows(self, key: str) -> tuple[str, str]:
        """The keys of the previous and of the current window, in one slot."""
        return f"{self.key_prefix}:{{{key}}}/-1", f"{self.key_prefix}:{{{key}}}"

    def _pattern(self) -> str:
        return f"{escaped(self.key_prefix)}:*"

    def incr(self, key: str, expiry: int, amount: int = 1) -> Any:
        """Count in a fixed window."""
        return self._complete(operations.increment, self._key(key), expiry, amount)

    def get(self, key: str) -> Any:
        """The count of a fixed window."""
        return self._complete(operations.count, self._key(key))

    def get_expiry(self, key: str) -> Any:
        """When a fixed window ends, in seconds since 1970."""
        return self._complete(operations.expires_at, self._key(key))

    def clear(self, key: str) -> Any:
        """Forget a fixed or a moving window."""
        return self._complete(operations.clear, self._key(key))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        """Take entries of a moving window; False when there is no room."""
        return self._complete(operations.acquire_moving, self._key(key), limit, expiry, amount)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Any:
        """When the oldest entry of a moving window was taken, and how many entries there are."""
        return self._complete(operations.moving_window, self._key(key), limit, expiry)

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        """Count in a sliding window; False when there is no room."""
        return self._complete(operations.acquire_sliding, *self._windows(key), limit, expiry, amount)

    def get_sliding_window(self, key: str, expiry: int) -> Any:
        """Count and TTL of the previous and of the current window."""
        return self._complete(operations.sliding_window, *self._windows(key), expiry)

    def clear_sliding_window(self, key: str, expiry: int) -> Any:  # noqa: ARG002 - limits passes it
        """Forget both windows."""
        return self._complete(operations.clear, *self._windows(key))

    def check(self) -> Any:
        """Whether the server answers."""
        return self._complete(operations.is_up)


class EphemeraStorage(_Operations, Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """The storage for `limits.strategies`; all threads share it, and a forked process connects by itself.

    It may be called on the thread of an event loop, as slowapi does, and then blocks the loop for a round
    trip, as any synchronous storage does.
    """

    STORAGE_SCHEME = list(KINDS)  # noqa: RUF012 - limits declares it on instances

    def __init__(
        self, uri: str, *, key_prefix: str = "LIMITS", wrap_exceptions: bool = False, **options: Any
    ) -> None:
        """Connect when it is first used.

        Args:
            uri: `ephemera://host:6379/0`; see the page on URLs, with `ephemera` in place of `redis`.
            key_prefix: What its keys begin with.
            wrap_exceptions: Raise `limits.errors.StorageError` in place of our errors.
            options: Options of the URL, such as `timeout=1`; `username` and `password`, if they are not in
                the URL; `service_name`, the name of the master that Sentinels watch; `sentinel_kwargs` with
                a `username` and `password` of the Sentinels, which by default are those of the servers.

        """
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.key_prefix = key_prefix
        self._store = connect(server_url(uri, options), required=False)

    def _complete(self, operation: Operation, *args: Any) -> Any:
        return self._store.complete(operation(self._store.client, *args))

    def reset(self) -> int:
        """Delete all keys with the prefix, and return how many there were."""
        return self._store.wait_regardless(delete_keys(self._store.aio.client(), self._pattern()))

    def close(self) -> None:
        """Disconnect; a program that ends need not."""
        self._store.close()


class AsyncEphemeraStorage(_Operations, AsyncStorage, AsyncMovingWindow, AsyncSlidingWindowCounter):
    """The storage for `limits.aio.strategies`; each event loop has a connection, closed with the loop."""

    STORAGE_SCHEME = [f"async+{each}" for each in KINDS]  # noqa: RUF012

    def __init__(
        self, uri: str, *, key_prefix: str = "LIMITS", wrap_exceptions: bool = False, **options: Any
    ) -> None:
        """Connect when it is first used, in each event loop.

        Args:
            uri: `async+ephemera://host:6379/0`; the rest is that of `EphemeraStorage`.
            key_prefix: What its keys begin with.
            wrap_exceptions: Raise `limits.errors.StorageError` in place of our errors.
            options: Options of the URL, `username`, `password`, `service_name` and `sentinel_kwargs`.

        """
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self.key_prefix = key_prefix
        self._clients = LoopClients(server_url(uri, options))

    async def _complete(self, operation: Operation, *args: Any) -> Any:
        return await operation(self._clients.current() or await self._clients.get(), *args)

    def reset(self) -> Any:
        """Delete all keys with the prefix, and return how many there were."""
        return self._complete(delete_keys, self._pattern())

    async def aclose(self) -> None:
        """Close the connection of this event loop; its next use opens another."""
        await self._clients.aclose()
