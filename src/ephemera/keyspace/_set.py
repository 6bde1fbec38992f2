"""Sets and sorted sets: members are text, bytes or numbers, stored as they are so that equality is exact.

Adding and removing are partial writes; all members of a key share its lifetime. Where members must expire one
by one, use a sorted set with the expiry as score and `remove_between`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isnan
from typing import Any, Generic, TypeAlias, TypeVar, cast

from ephemera.errors import InvalidValue
from ephemera.keyspace._accessor import Accessor, in_chunks
from ephemera.keyspace._codec import Codec
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._keyspace import Keyspace
from ephemera.keyspace._lifetime import Instant
from ephemera.keyspace._template import Fields
from ephemera.wire import Arg, Client

M = TypeVar("M")
Ranked: TypeAlias = list[tuple[M, float]]
"""Members with their scores, in order."""


class _Members(Accessor, Generic[M]):
    """What both kinds of set share."""

    __slots__ = ("_decode", "_encode")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        super().__init__(keyspace, client)
        codec = cast("Codec[M]", keyspace.codec)
        self._encode, self._decode = codec.encode, codec.decode

    def _counted(self, found: bool) -> bool:
        if found:
            self.stats.hits += 1
        else:
            self.stats.misses += 1
        return found

    def _decode_all(self, stored: Collection[bytes]) -> list[M]:
        members = [self._decode(data) for data in stored]
        self.stats.bytes_read += sum(map(len, stored))
        readable = [member for member in members if member is not None]
        self.stats.undecodable += len(members) - len(readable)
        self._counted(bool(readable))
        return readable


class SetAccessor(_Members[M]):
    """A set per key."""

    __slots__ = ()

    async def add(self, /, *members: M, until: Instant | None = None, **fields: FieldValue) -> int:
        """Add members; returns how many were new.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        """
        writes = in_chunks("SADD", [self._encode(member) for member in members])
        return sum(await self._change(self._render(fields), *writes, until=until) or ())

    async def remove(self, /, *members: M, **fields: FieldValue) -> int:
        """Remove members; returns how many existed."""
        writes = in_chunks("SREM", [self._encode(member) for member in members])
        return sum(await self._change_existing(self._render(fields), *writes) or ())

    async def contains(self, member: M, /, **fields: FieldValue) -> bool:
        """Whether it is a member."""
        reply = await self._read("SISMEMBER", self._render(fields), self._encode(member))
        return self._counted(bool(reply))

    async def members(self, /, **fields: FieldValue) -> set[M]:
        """All members; empty when the key is absent."""
        return set(self._decode_all(await self._read("SMEMBERS", self._render(fields))))

    async def size(self, /, **fields: FieldValue) -> int:
        """The number of members."""
        return int(await self._read("SCARD", self._render(fields)))


class SortedSetAccessor(_Members[M]):
    """Members ordered by score."""

    __slots__ = ()

    async def add(
        self, scores: Mapping[M, float], /, *, until: Instant | None = None, **fields: FieldValue
    ) -> int:
        """Add members with their scores, or change their scores; returns how many were new.

        `until` is the instant at which it expires, where the keyspace has an `until` lifetime.
        """
        flat: list[Arg] = []
        given: object = scores
        if not isinstance(given, Mapping):
            expected = "members with scores, as in add({member: 1.5})"
            raise InvalidValue(self.keyspace.pattern, expected, type(given).__name__)
        for member, score in scores.items():
            flat += (self._number(score), self._encode(member))
        writes = in_chunks("ZADD", flat)
        return sum(await self._change(self._render(fields), *writes, until=until) or ())

    async def increment(
        self, member: M, by: float, /, *, until: Instant | None = None, **fields: FieldValue
    ) -> float:
        """Add to a member's score and return it; 0 when `until` has passed."""
        write = ("ZINCRBY", self._number(by), self._encode(member))
        replies = await self._change(self._render(fields), write, until=until)
        return float(replies[0]) if replies else 0.0

    async def remove(self, /, *members: M, **fields: FieldValue) -> int:
        """Remove members; returns how many existed."""
        writes = in_chunks("ZREM", [self._encode(member) for member in members])
        return sum(await self._change_existing(self._render(fields), *writes) or ())

    async def remove_between(self, low: float, high: float, /, **fields: FieldValue) -> int:
        """Remove the members with scores from `low` to `high`, both included; returns how many."""
        write = ("ZREMRANGEBYSCORE", low, high)
        return sum(await self._change_existing(self._render(fields), write) or ())

    async def score(self, member: M, /, **fields: FieldValue) -> float | None:
        """A member's score, or None when it is not a member."""
        score = await self._read("ZSCORE", self._render(fields), self._encode(member))
        self._counted(score is not None)
        return cast("float | None", score)

    async def range(self, start: int, stop: int, /, **fields: FieldValue) -> Ranked[M]:
        """Members by rank, lowest score first, `stop` included; -1 is the last."""
        return await self._range(fields, start, stop)

    async def highest(self, count: int, /, **fields: FieldValue) -> Ranked[M]:
        """The members with the highest scores, highest first."""
        return await self._range(fields, 0, count - 1, "REV") if count > 0 else []

    async def between(self, low: float, high: float, count: int = -1, /, **fields: FieldValue) -> Ranked[M]:
        """Members with scores from `low` to `high`, both included, lowest first, at most `count`."""
        return await self._range(fields, low, high, "BYSCORE", "LIMIT", 0, count)

    async def size(self, /, **fields: FieldValue) -> int:
        """The number of members."""
        return int(await self._read("ZCARD", self._render(fields)))

    def _number(self, score: float) -> float:
        if type(score) not in (int, float) or isnan(score):
            raise InvalidValue(self.keyspace.pattern, "members with numbers as scores", repr(score)[:40])
        return score

    async def _range(self, fields: Fields, *bounds: Arg) -> Ranked[M]:
        stored = await self._read("ZRANGE", self._render(fields), *bounds, "WITHSCORES")
        decoded = [(self._decode(data), score) for data, score in stored]
        self.stats.bytes_read += sum([len(data) for data, _ in stored])
        ranked = [(member, score) for member, score in decoded if member is not None]
        self.stats.undecodable += len(decoded) - len(ranked)
        self._counted(bool(ranked))
        return ranked
