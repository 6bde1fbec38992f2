"""What `store[X]` is in synchronous code; `_bound.pyi`, which is generated, says it to type checkers."""

from ephemera.blocking import BlockingStore
from ephemera.keyspace import Declaration, Keyspace
from ephemera.sync._sync_classes import make_on_loop, sync_class


class BoundItems:
    """The synchronous form of everything that is declared, made once each."""

    def __init__(self, store: BlockingStore) -> None:
        self.__store = store
        self.__items: dict[Declaration, object] = {}

    def __getitem__(self, declaration: Declaration) -> object:
        """The accessor of a keyspace, or the runtime object of a pattern."""
        try:
            return self.__items[declaration]
        except (KeyError, TypeError):  # not bound yet, or not hashable
            store = self.__store
            if isinstance(declaration, Keyspace):
                accessor = store.accessor(declaration)
                item = sync_class(type(accessor))(store, accessor)
            elif hasattr(declaration, "bind_sync"):
                item = declaration.bind_sync(store)
            else:
                item = make_on_loop(store, lambda: store.aio[declaration])
                item._locate = lambda: store.aio[declaration]  # in a forked child, another object
            self.__items[declaration] = item
            return item
