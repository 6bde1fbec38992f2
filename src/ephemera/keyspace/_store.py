"""A store: the servers of a service by role, and typed access to what is declared.

`store[DECLARATION]` is the accessor of a keyspace, or the runtime object of a pattern, on the right server;
it is created once. `store.call` sends any other command, to the server of role `cache`;
`store.client("queue")` is the client of the other role.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from ephemera.errors import InvalidDeclaration, MissingResource
from ephemera.keyspace._catalogue import Catalogue, check_overlap
from ephemera.keyspace._keyspace import Keyspace, Role, Stats
from ephemera.keyspace._server_identity import RESERVED
from ephemera.wire import Client, ObservedClient, Observer

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Declaration(Protocol[A_co]):
    """What `store[...]` takes: a keyspace, or a pattern."""

    def bind(self, store: Store) -> A_co:
        """Create its runtime object on a store; called once per store."""


class Store:
    """Connected clients by role, and the runtime objects of what is declared; `connect` opens one.

    `resources` is what declarations need besides Redis, by declaration.
    """

    def __init__(
        self,
        clients: Mapping[Role, Client],
        *catalogues: Catalogue,
        resources: Mapping[Any, object] | None = None,
    ) -> None:
        for catalogue in catalogues:
            if not isinstance(catalogue, Catalogue):
                raise TypeError(f"connect(url, ...) takes catalogues, not {type(catalogue).__name__}")
        _check_catalogues(catalogues)
        self.catalogues = catalogues
        """What the store may use."""
        self._clients: dict[Role, Client] = dict(clients)
        self._resources = dict(resources or {})
        self._bound: dict[Declaration[Any], Any] = {}
        self._binding = threading.RLock()  # threads share the store of `ephemera.sync`
        self._callbacks: list[Callable[[], Awaitable[None]]] = []
        self._use(self._clients["cache"])

    def __getitem__(self, declaration: Declaration[A]) -> A:
        """The accessor of a keyspace, or the runtime object of a pattern."""
        bound: A
        try:
            bound = self._bound[declaration]
        except (KeyError, TypeError):  # not bound yet, or not hashable
            if not hasattr(declaration, "bind"):
                raise TypeError(
                    f"store[...] takes a declared keyspace or pattern, not {declaration!r}; "
                    "use what catalogue.hash(...) or Locks(...) returned"
                ) from None
            with self._binding:
                if declaration not in self._bound:
                    self._bound[declaration] = declaration.bind(self)
                bound = self._bound[declaration]
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
        """Every runtime object of this store: the accessors and patterns that were used."""
        return list(self._bound.values())

    def observe(self, observer: Observer) -> None:
        """Report every command and script to an observer; call it before anything is bound to the store."""
        if self._bound:
            first = next(iter(self._bound))
            raise InvalidDeclaration(
                repr(first), "it is in use already and would not be observed", "observe the store first"
            )
        observed = {client: ObservedClient(client, observer) for client in set(self._clients.values())}
        self._clients = {role: observed[client] for role, client in self._clients.items()}
        self._use(self._clients["cache"])

    @property
    def stats(self) -> dict[Keyspace[Any], Stats]:
        """The counts of every keyspace that was used."""
        bound = list(self._bound.items())  # a snapshot: another thread may read it for a scrape
        return {keyspace: accessor.stats for keyspace, accessor in bound if isinstance(keyspace, Keyspace)}

    def client(self, role: Role = "cache") -> Client:
        """The client of the server with a role."""
        return self._clients[role]

    def declares(self, keyspace: Keyspace[Any]) -> bool:
        """Whether a keyspace is in one of the store's catalogues."""
        return any(keyspace in catalogue for catalogue in self.catalogues)

    def resource(self, declaration: object, needed: str, kind: Any = object) -> Any:
        """What `connect(..., resources={declaration: ...})` was given for a declaration.

        `needed` describes it in the error when it is missing; `kind` is its type.
        """
        try:
            given = self._resources[declaration]
        except KeyError:
            raise MissingResource(repr(declaration), needed) from None
        if not isinstance(given, kind):
            raise MissingResource(repr(declaration), needed, type(given).__name__)
        return given

    def before_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call this before the store disconnects, for instance to stop a pattern's task."""
        self._callbacks.append(callback)

    async def aclose(self) -> None:
        """Run the `before_close` callbacks, last one first, and disconnect; `connect` does this itself."""
        while self._callbacks:
            await self._callbacks.pop()()
        for client in set(self._clients.values()):
            await client.aclose()


def _check_catalogues(catalogues: tuple[Catalogue, ...]) -> None:
    """Catalogues of one store share its servers, so their patterns must not overlap."""
    catalogues = (RESERVED, *(each for each in catalogues if each is not RESERVED))
    for position, catalogue in enumerate(catalogues):
        for earlier in catalogues[:position]:
            if earlier.name == catalogue.name:
                raise InvalidDeclaration(
                    catalogue.name, "two catalogues have this name", "rename one, or give it once"
                )
            for keyspace in catalogue:
                for other in earlier:
                    check_overlap(keyspace.template, keyspace.kind, other)
