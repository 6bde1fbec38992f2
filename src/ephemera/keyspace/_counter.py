"""Counters: whole numbers that any number of callers add to at once.

The first addition creates the counter and starts its life in the same step, and an addition to a counter
that has lost its end gives it a new one, so no counter can stay for ever by accident.
"""

from __future__ import annotations

from collections.abc import Iterable

from ephemera.errors import InvalidValue
from ephemera.keyspace._accessor import Accessor
from ephemera.keyspace._field_values import FieldValue
from ephemera.keyspace._lifetime import Instant
from ephemera.keyspace._scalars import DECODE_ERRORS
from ephemera.keyspace._template import Fields

_BOUND = 2**63


class CounterAccessor(Accessor):
    """One whole number a key."""

    __slots__ = ()

    async def get(self, /, **fields: FieldValue) -> int:
        """The count; 0 when nothing was counted."""
        return (await self.get_many([fields]))[0]

    async def get_many(self, keys: Iterable[Fields], /) -> list[int]:
        """Several counts in one trip."""
        rendered = self._rendered(keys)
        return [self._counted(data) for data in await self._read_all("GET", rendered)]

    async def add(self, by: int = 1, /, *, until: Instant | None = None, **fields: FieldValue) -> int:
        """Add to the count and return it; 0 when `until` has passed and nothing was counted."""
        replies = await self._change(self._render(fields), ("INCRBY", self._whole(by)), until=until)
        return replies[0] if replies else 0

    async def add_many(
        self, additions: Iterable[tuple[Fields, int]], /, *, until: Instant | None = None
    ) -> list[int]:
        """Add to several counts in one trip; each as `add`."""
        rule, end = self.keyspace.lifetime.on_change, await self._end(until)
        rendered = [(key, self._whole(by)) for key, by in self._paired(additions)]
        replies = await self._all(self._writing(rule, key, [("INCRBY", by)], end) for key, by in rendered)
        self.stats.writes += sum(reply is not None for reply in replies)
        return [reply[0] if reply else 0 for reply in replies]

    def _whole(self, by: int) -> int:
        if type(by) is not int or not -_BOUND <= by < _BOUND:
            raise InvalidValue(self.keyspace.pattern, "whole numbers of 64 bits", repr(by)[:40])
        return by

    def _counted(self, data: bytes | None) -> int:
        try:
            count = 0 if data is None else int(data)
        except DECODE_ERRORS:
            self.stats.undecodable += 1
            data, count = None, 0
        if data is None:
            self.stats.misses += 1
        else:
            self.stats.hits += 1
            self.stats.bytes_read += len(data)
        return count
