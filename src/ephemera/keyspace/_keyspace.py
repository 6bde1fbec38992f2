"""A declared keyspace: the pattern of its keys, their type, lifetime and purpose.

A `Keyspace[A]` is created by a `Catalogue`, never changes, and is shared by all stores. `A` is the accessor
that `store[keyspace]` returns, so a type checker knows what each operation takes and returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeAlias, TypeVar

from ephemera.errors import ConnectionFailed, ServerError, UndeclaredKeyspace
from ephemera.keyspace._codec import Codec
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._lifetime import Lifetime
from ephemera.keyspace._record_codec import EntryCodec, RecordCodec
from ephemera.keyspace._template import Template, unnamed_field
from ephemera.wire import Client

if TYPE_CHECKING:
    from ephemera.keyspace._store import Store

A = TypeVar("A")

Role: TypeAlias = Literal["cache", "queue"]
"""`cache` may be evicted; `queue` must not be: unflushed counters, queues, streams."""

Kind: TypeAlias = Literal[
    "hash", "mapping", "value", "counter", "set", "sorted_set", "list", "stream", "channel", "flag"
]
"""The kind of a keyspace: the name of the `Catalogue` method that declares it."""

_REDIS_TYPES = {"mapping": "hash", "value": "string", "counter": "string", "flag": "string"}


@dataclass(frozen=True, slots=True, eq=False)
class Keyspace(Generic[A]):
    """One declared keyspace; compared by identity, so that `store[keyspace]` is one dict lookup."""

    catalogue: str
    template: Template
    kind: Kind
    codec: Codec[Any] | RecordCodec[Any] | EntryCodec[Any] | None
    accessor: Callable[[Keyspace[A], Client], A]
    lifetime: Lifetime
    purpose: str
    role: Role = "cache"
    saves: str = ""
    invalidated_by: tuple[str, ...] = ()
    if_lost: str = ""
    owner: str = ""
    sensitive: bool = False
    max_length: int | None = None

    @property
    def pattern(self) -> str:
        """The pattern as declared, which is also the keyspace's name."""
        return self.template.pattern

    @property
    def redis_type(self) -> str:
        """What TYPE returns for these keys; a channel has none."""
        return _REDIS_TYPES.get(self.kind, self.kind).replace("sorted_set", "zset")

    def key(self, /, *positional: Never, **fields: FieldValue) -> str:
        """The key with these fields."""
        if positional:
            raise unnamed_field(self.template, "key")
        return self.template.render(fields)

    def parse(self, key: bytes | str) -> dict[str, Any] | None:
        """The fields of a key, or None when it does not belong to this keyspace.

        A field with a declared type has a value of that type, and any other is text.
        """
        return self.template.parse(key)

    def bind(self, store: Store) -> A:
        """The accessor of this keyspace on a store that has its catalogue."""
        if not store.declares(self):
            names = tuple(catalogue.name for catalogue in store.catalogues)
            raise UndeclaredKeyspace(self.pattern, self.catalogue, names)
        return self.accessor(self, store.client(self.role))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.pattern!r} of {self.catalogue}>"


REDIS_ERRORS = (ConnectionFailed, ServerError)
"""Errors of the server, or of the connection to it; `Stats.errors` counts them."""


class Stats:
    """What one store did with one keyspace since it was opened: plain counts, readable at any time.

    A batch counts each of its keys. `undecodable` counts the misses where something was stored that is not of
    the keyspace's type; for a list, set or stream, which is one hit or miss, it counts such items. Deletions
    count as writes. Bytes are those of values as they are stored, without their keys.

    `counting_errors` is the one way to count a failed Redis call; the error is raised as it is:

        with stats.counting_errors:
            reply = await client.call(...)

    It is made once and may be entered by any number of tasks at once. On success it costs about a tenth of a
    microsecond.
    """

    __slots__ = (
        "bytes_read", "bytes_written", "counting_errors", "errors", "hits", "misses", "undecodable", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.writes = 0
        self.errors = 0
        self.undecodable = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.counting_errors = _ErrorCounter(self)

    @property
    def hit_ratio(self) -> float | None:
        """Hits among reads, or None before the first read."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else None

    def __repr__(self) -> str:
        counts = (name for name in self.__slots__ if name != "counting_errors")
        return "Stats(" + ", ".join(f"{name}={getattr(self, name)}" for name in counts) + ")"


class _ErrorCounter:
    """The context manager `Stats.counting_errors`; it has no state of its own, so it can be shared."""

    __slots__ = ("_stats",)

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, REDIS_ERRORS):
            self._stats.errors += 1
