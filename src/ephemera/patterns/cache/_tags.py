"""Tags by marker: ending a tag is one write, however many entries have it.

A marker holds the moment its tag was last ended; an entry holds its tags and the moment before its load. It
is over when one of its markers is later. Moments come from one clock for all tags of a cache, in one slot of
a cluster, and never repeat or run backwards (`cache_tick.lua`), so machines' clocks do not matter. Marker and
clock outlive every entry they could end; an evicted marker is the one way a tagged entry can survive, so on a
server that evicts give tagged caches a `fresh` that you can live with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ephemera.keyspace import CounterAccessor, Keyspace
from ephemera.wire import Client, Script

TICK = Script.load("ephemera.patterns.cache", "tick")

PLACE = "tags"
"""The hash tag that puts a cache's markers and their clock into one slot."""


class Tags:
    """The tags of one cache in one store."""

    def __init__(
        self, markers: Keyspace[CounterAccessor], clock: Keyspace[CounterAccessor], client: Client
    ) -> None:
        self._call, self._run = client.call, client.run
        self._markers = markers
        self._clock = clock.key(place=PLACE)
        self._life = str(markers.lifetime.milliseconds)

    def marker(self, tag: str) -> str:
        """The key of a tag's marker."""
        return self._markers.key(place=PLACE, tag=tag)

    async def moment(self) -> int:
        """The moment now, for a load that begins."""
        moment: int = await self._run(TICK, (self._clock,), (self._life,))
        return moment

    async def end(self, tag: str) -> None:
        """End every entry that has the tag and was loaded, or begun to be, before now."""
        await self._run(TICK, (self._clock, self.marker(tag)), (self._life,))

    async def over(self, tags: Sequence[str], began: int) -> bool:
        """Whether one of the tags was ended since that moment: one trip."""
        ended: list[Any] = await self._call("MGET", *map(self.marker, tags))
        return any(_later(moment, began) for moment in ended if moment is not None)

    def tag_of(self, key: str) -> str | None:
        """The tag whose marker a key is."""
        fields = self._markers.parse(key)
        return fields["tag"] if fields else None


def _later(moment: bytes, began: int) -> bool:
    """Whether a marker is later; one that holds no moment is not ours, and ends what it marks."""
    try:
        return int(moment) > began
    except ValueError:
        return True
