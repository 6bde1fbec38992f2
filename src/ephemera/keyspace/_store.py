"""A store: the servers of a service by role, and typed access to its declared keys.

`connect(url, catalogue)` opens it; `queue_url` names a second server for the spaces of role `queue`, which
must not be evicted, and without it one server carries both roles. `store[SPACE]` is the space's accessor on
the right server, bound once. `store.call` is for everything else, on the cache-role server unless
`store.client("queue")` is asked. All of it reads from masters: `read_from=replicas` is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar
from weakref import ref

from ephemera.errors import InvalidDeclaration, InvalidUrl, MissingResource
from ephemera.keyspace._catalogue import Catalogue, check_overlap
from ephemera.keyspace._connect_guard import async_with_only
from ephemera.keyspace._keyspace import Keyspace, Role, Stats
from ephemera.keyspace._server_identity import RESERVED, check_identity, guarded
from ephemera.wire import Client, ObservedClient, Observer, open_client, parse_url

_MUST_SEE = (
    "read_from=replicas is not for a store: what it promises (that a revoked token is refused, that a batch "
    "is whole) needs reads of what was written, and a replica may lag; leave it out here. `ephemera audit` "
    "and `wire.open_client` take it"
)

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Declaration(Protocol[A_co]):
    """What `store[...]` takes: a space, or a pattern made of spaces."""

    def bind(self, store: Store) -> A_co:
        """Its working object on a store; asked once per store."""


class Store:
    """Open clients by role, and what is declared in the store's catalogues, bound to them."""

    def __init__(
        self,
        clients: Mapping[Role, Client],
        *catalogues: Catalogue,
        resources: Mapping[Any, object] | None = None,
    ) -> None:
        for catalogue in catalogues:
            if not isinstance(catalogue, Catalogue):
                raise TypeError(f"connect(url, ...) takes catalogues, not {catalogue!r}")
        _refuse_clashes(catalogues)
        self.catalogues = catalogues
        self._clients: dict[Role, Client] = dict(clients)
        self._resources = dict(resources or {})
        self._bound: dict[Declaration[Any], Any] = {}
        self._adopted: list[ref[Any]] = []
        self._farewells: list[Callable[[], Awaitable[None]]] = []
        self._use(self._clients["cache"])

    def __getitem__(self, declared: Declaration[A]) -> A:
        """The accessor of a space, or the working object of a pattern."""
        try:
            return self._bound[declared]  # type: ignore[no-any-return]
        except (KeyError, TypeError):  # not bound yet, or nothing that can be
            if not hasattr(declared, "bind"):
                raise TypeError(
                    f"store[...] takes a declared space or pattern, not {declared!r}; "
                    "use what catalogue.hash(...) and its like returned"
                ) from None
            bound = self._bound[declared] = declared.bind(self)
            return bound

    def __repr__(self) -> str:
        names = ", ".join(catalogue.name for catalogue in self.catalogues) or "no catalogue"
        cache, queue = self.client("cache"), self.client("queue")
        return f"<Store of {names} on {cache!r}{'' if queue is cache else f', queue on {queue!r}'}>"

    def _use(self, cache: Client) -> None:
        self.call = cache.call
        self.run = cache.run
        self.subscribe = cache.subscribe
        self.track = cache.track

    @property
    def runtimes(self) -> list[Any]:
        """Every runtime object of this store: accessors, patterns, and what `adopt` registered."""
        adopted = (known() for known in self._adopted)
        return [*self._bound.values(), *(live for live in adopted if live is not None)]

    def adopt(self, live: object) -> None:
        """Make what is bound to more than the store, such as jobs with a database, known to `runtimes`."""
        # Replaced, not changed: another thread may be reading it for a scrape.
        self._adopted = [*(known for known in self._adopted if known() is not None), ref(live)]

    def observe(self, observer: Observer) -> None:
        """Report every command and script to an observer; call it before anything is bound to the store."""
        if self._bound:
            first = next(iter(self._bound))
            raise InvalidDeclaration(
                repr(first), "it is in use already, and would not be observed", "be first"
            )
        observed = {client: ObservedClient(client, observer) for client in set(self._clients.values())}
        self._clients = {role: observed[client] for role, client in self._clients.items()}
        self._use(self._clients["cache"])

    @property
    def stats(self) -> dict[Keyspace[Any], Stats]:
        """The counts of every space that was used."""
        bound = list(self._bound.items())  # of which another thread may need a snapshot
        return {space: access.stats for space, access in bound if isinstance(space, Keyspace)}

    def client(self, role: Role = "cache") -> Client:
        """The client of the server that carries a role."""
        return self._clients[role]

    def declares(self, space: Keyspace[Any]) -> bool:
        """Whether a space is in one of the store's catalogues."""
        return any(space in catalogue for catalogue in self.catalogues)

    def resource(self, declaration: object, needed: str, kind: Any = object) -> Any:
        """What `connect(..., resources={declaration: ...})` gave a pattern that needs more than Redis.

        `needed` says what that is, for the error when it is missing; `kind` is its type.
        """
        try:
            given = self._resources[declaration]
        except KeyError:
            raise MissingResource(repr(declaration), needed) from None
        if not isinstance(given, kind):
            raise MissingResource(repr(declaration), needed, type(given).__name__)
        return given

    def before_close(self, farewell: Callable[[], Awaitable[None]]) -> None:
        """Have something done before the store disconnects, such as ending a pattern's own task."""
        self._farewells.append(farewell)

    async def aclose(self) -> None:
        """Say farewell, last come first, and disconnect; `connect` does this at the end of its block."""
        while self._farewells:
            await self._farewells.pop()()
        for client in set(self._clients.values()):
            await client.aclose()


@async_with_only
async def connect(
    url: str,
    *catalogues: Catalogue,
    queue_url: str | None = None,
    required: bool = True,
    identity: str | None = None,
    queue_identity: str | None = None,
    modules: Collection[str] = (),
    resources: Mapping[Any, object] | None = None,
) -> AsyncIterator[Store]:
    """An open store; with `required=False` its servers may be absent at first.

    `identity` is the name that its server must be marked with, `queue_identity` that of the `queue_url`
    server if it differs; without one, a server that is marked as somebody's is refused. `modules` are those
    that its servers may carry beside their own. `resources` gives declarations what they need besides Redis,
    such as a SQL engine: `resources={JOBS: engine}`.
    """
    if queue_identity is not None and queue_url is None:
        raise InvalidUrl("queue_identity names a server, and there is no queue_url that says where it is")
    async with AsyncExitStack() as opened:

        async def opening(url: str, name: str | None) -> Client:
            target = parse_url(url)
            if target.read_from == "replicas":
                raise InvalidUrl(_MUST_SEE)
            opening = open_client(url, required=required, modules=modules)
            client = await opened.enter_async_context(opening)
            address = ",".join(map(str, target.addresses))
            if name is not None:
                await opened.enter_async_context(guarded(client, address, name))
            elif client.up:
                await check_identity(client, address, None)
            return client

        cache = await opening(url, identity)
        queue = cache if queue_url is None else await opening(queue_url, queue_identity or identity)
        store = Store({"cache": cache, "queue": queue}, *catalogues, resources=resources)
        opened.push_async_callback(store.aclose)
        yield store


def _refuse_clashes(catalogues: tuple[Catalogue, ...]) -> None:
    """Catalogues of one store share its servers, so their patterns must not overlap either."""
    catalogues = (RESERVED, *(each for each in catalogues if each is not RESERVED))
    for place, catalogue in enumerate(catalogues):
        for earlier in catalogues[:place]:
            if earlier.name == catalogue.name:
                raise InvalidDeclaration(
                    catalogue.name, "two catalogues have this name", "rename one, or give it once"
                )
            for space in catalogue:
                for other in earlier:
                    check_overlap(space.template, space.kind, other)
