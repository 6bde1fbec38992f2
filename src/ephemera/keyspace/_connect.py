"""`connect`: opens a store for the length of an `async with` block.

`queue_url` names a second server for keyspaces of role `queue`, which must not be evicted; without it one
server has both roles. A store reads from masters only: `read_from=replicas` is refused.

Nothing is connected before the block is entered. Using the result of `connect(...)` without `async with`, or
awaiting it, raises an error that shows the right form.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from ephemera.errors import InvalidUrl
from ephemera.keyspace._catalogue import Catalogue
from ephemera.keyspace._server_identity import check_identity, guarded
from ephemera.keyspace._store import Store
from ephemera.wire import Client, CredentialProvider, open_client, parse_url

P = ParamSpec("P")
T = TypeVar("T")

_READ_FROM_REPLICAS = (
    "read_from=replicas is not for a store: its guarantees (a revoked token is refused, a batch is complete) "
    "need to read what was written, and a replica may lag; leave it out. `ephemera audit` and "
    "`wire.open_client` accept it"
)
_ADVICE = "nothing is connected yet; use: async with connect(...) as store"


def async_with_only(make: Callable[P, AsyncIterator[T]]) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Like `asynccontextmanager`, with clear errors when the result is used without `async with`."""
    open_context = asynccontextmanager(make)

    @wraps(make)
    def make_guarded(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Guarded(open_context(*args, **kwargs))

    return make_guarded


class _Guarded(AbstractAsyncContextManager[T]):
    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        self._context = context

    async def __aenter__(self) -> T:
        return await self._context.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._context.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # to which `with` is an error without these

        def __enter__(self) -> None:
            raise TypeError(
                f"connect(...) needs `async with`, not `with`: {_ADVICE}; synchronous code uses ephemera.sync"
            )

        def __exit__(self, *_: object) -> None:
            """Never called: `with` needs it to reach the error of `__enter__`."""

    def __await__(self) -> Generator[Any, None, NoReturn]:
        raise TypeError(f"connect(...) cannot be awaited: {_ADVICE}")

    def __getitem__(self, declaration: object) -> NoReturn:
        raise TypeError(f"connect(...) is not a store: {_ADVICE}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"connect(...) is not a store, and has no {name!r}: {_ADVICE}")


@async_with_only
async def connect(
    url: str,
    *catalogues: Catalogue,
    queue_url: str | None = None,
    required: bool = True,
    identity: str | None = None,
    queue_identity: str | None = None,
    modules: Collection[str] = (),
    credentials: CredentialProvider | None = None,
    queue_credentials: CredentialProvider | None = None,
    resources: Mapping[Any, object] | None = None,
) -> AsyncIterator[Store]:
    """Open a store for an `async with` block.

    Args:
        url: The server, as in `redis://user:password@host:6379/0`; `docs/wire.md` lists all forms.
        catalogues: What the store may use.
        queue_url: A second server, for keyspaces of role `queue`; by default all are on the first.
        required: False when the store may open while its servers are down.
        identity: The name that the servers must be marked with; a marked server is refused without its name.
        queue_identity: That of the second server; by default `identity`.
        modules: Names of server modules that are expected.
        credentials: A function or coroutine function that returns `Credentials`, called again before they
            expire; by default those of the URL.
        queue_credentials: That of the second server; by default `credentials`.
        resources: What declarations need besides Redis, such as a SQL engine: `resources={JOBS: engine}`.

    """
    if queue_identity is not None and queue_url is None:
        raise InvalidUrl("queue_identity is the name of a second server; give its address as queue_url")
    async with AsyncExitStack() as opened:

        async def open_server(url: str, name: str | None, provider: CredentialProvider | None) -> Client:
            target = parse_url(url)
            if target.read_from == "replicas":
                raise InvalidUrl(_READ_FROM_REPLICAS)
            client = await opened.enter_async_context(
                open_client(url, required=required, modules=modules, credentials=provider)
            )
            address = ",".join(map(str, target.addresses))
            if name is not None:
                await opened.enter_async_context(guarded(client, address, name))
            elif client.up:
                await check_identity(client, address, None)
            return client

        cache = queue = await open_server(url, identity, credentials)
        if queue_url is not None:
            queue = await open_server(queue_url, queue_identity or identity, queue_credentials or credentials)
        store = Store({"cache": cache, "queue": queue}, *catalogues, resources=resources)
        opened.push_async_callback(store.aclose)
        yield store
