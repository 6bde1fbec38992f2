"""Streams and channels: an ordered log of entries, and messages that are not stored.

A stream's entry is a record, each of its fields a field of the entry, or one value of any type
(`EntryCodec`). `append` gives it the next id, trims the stream to exactly `max_length`, and sets the TTL, in
one step. A channel reaches only those who are subscribed at the moment; messages that must not be missed go
into a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from ephemera.keyspace._accessor import Accessor
from ephemera.keyspace._codec import Codec
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._keyspace import Keyspace, Stats
from ephemera.keyspace._lifetime import Instant
from ephemera.keyspace._record_codec import EntryCodec, RecordCodec
from ephemera.wire import Arg, Client

V = TypeVar("V")


class StreamAccessor(Accessor, Generic[V]):
    """Entries in the order of their ids."""

    __slots__ = ("_codec", "_trim")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        self._codec = cast("RecordCodec[Any] | EntryCodec[V]", keyspace.codec)
        longest = keyspace.max_length
        self._trim: tuple[Arg, ...] = () if longest is None else ("MAXLEN", longest)

    async def append(self, entry: V, /, *, until: Instant | None = None, **fields: FieldValue) -> str | None:
        """Append an entry and return its id; None when `until` has passed."""
        write: list[Arg] = ["XADD", *self._trim, "*", *self._codec.encode(entry)]
        replies = await self._change(self._render(fields), write, until=until)
        return replies[0].decode() if replies else None

    async def range(
        self, first: str = "-", last: str = "+", count: int | None = None, /, **fields: FieldValue
    ) -> list[tuple[str, V]]:
        """Entries with ids from `first` to `last`, oldest first; `(id` excludes that id."""
        limit: tuple[Arg, ...] = () if count is None else ("COUNT", count)
        return self._decode_all(await self._read("XRANGE", self._render(fields), first, last, *limit))

    async def newest(self, count: int, /, **fields: FieldValue) -> list[tuple[str, V]]:
        """The newest entries, newest first."""
        key = self._render(fields)
        return self._decode_all(await self._read("XREVRANGE", key, "+", "-", "COUNT", count))

    async def size(self, /, **fields: FieldValue) -> int:
        """The number of entries."""
        return int(await self._read("XLEN", self._render(fields)))

    def decode(self, flat: list[bytes]) -> V | None:
        """Decode the fields of an entry as XREAD returns them; None when they are not one."""
        return self._codec.decode(dict(zip(flat[::2], flat[1::2], strict=True)))

    def _decode_all(self, stored: Iterable[tuple[bytes, list[bytes]]]) -> list[tuple[str, V]]:
        decoded = []
        for entry_id, flat in stored:
            decoded.append((entry_id.decode(), self.decode(flat)))
            self.stats.bytes_read += sum(map(len, flat))
        entries = [(entry_id, entry) for entry_id, entry in decoded if entry is not None]
        self.stats.undecodable += len(decoded) - len(entries)
        if entries:
            self.stats.hits += 1
        else:
            self.stats.misses += 1
        return entries


class ChannelAccessor(Generic[V]):
    """Messages of one type to the current subscribers."""

    __slots__ = ("_call", "_codec", "_render", "keyspace", "stats")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        self.keyspace = keyspace
        self.stats = Stats()
        self._call = client.call
        self._render: Callable[..., str] = keyspace.template.render
        self._codec = cast("Codec[V]", keyspace.codec)

    def name(self, /, **fields: FieldValue) -> str:
        """The channel's name, to subscribe to."""
        return self._render(fields)

    async def publish(self, message: V, /, **fields: FieldValue) -> int:
        """Publish a message; returns how many subscribers received it (on a cluster, those of one node)."""
        channel, data = self._render(fields), self._codec.encode(message)
        with self.stats.counting_errors:
            received: int = await self._call("PUBLISH", channel, data)
        self.stats.writes += 1
        self.stats.bytes_written += len(data)
        return received

    def decode(self, data: bytes) -> V | None:
        """Decode a published message; None when it is not of the declared type."""
        return self._codec.decode(data)
