"""One shard after another: sealing a batch, and forgetting it when it is in SQL.

The scripts give out a sealed batch to one flusher at a time, for as long as a claim lasts. That is for
economy alone. Two flushers with the same batch do no harm: SQL takes it once, and it is forgotten once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from ephemera.patterns.write_behind._batches import Batch
from ephemera.wire import Client, Script

if TYPE_CHECKING:
    from ephemera.patterns.write_behind._declaration import Shards

SEAL = Script.load("ephemera.patterns.write_behind", "seal")
ACKNOWLEDGE = Script.load("ephemera.patterns.write_behind", "acknowledge")
RENUMBER = Script.load("ephemera.patterns.write_behind", "renumber")


def shard_of(text: str, shards: int) -> int:
    """The shard of a text, the same in every process; similar texts are spread (a CRC alone does not)."""
    return (crc32(text.encode("utf-8", "surrogateescape")) * 0x9E3779B1 & 0xFFFFFFFF) * shards >> 32


class Sealed(NamedTuple):
    """A batch that waits to be written, and whether this call has sealed it."""

    shard: int
    epoch: str
    number: int
    size: int
    fresh: bool


class Queue:
    """The shards of one declaration on a server; `kind` is how the things in them are kept."""

    def __init__(self, shards: Shards, client: Client, kind: str, keys: list[tuple[str, ...]]) -> None:
        self.shards = shards
        self._client = client
        self._kind = kind
        self._keys = keys
        self._states = shards.keys(shards.state)

    async def seal(self, shard: int, who: str, claim: int, epoch: str, *, now: bool) -> Sealed | bool | None:
        """The batch of a shard; None when nothing is due, False when another flusher has it.

        `claim` is in milliseconds; `now` asks for what waits whatever its age.
        """
        shards = self.shards
        age = 0 if now else round(shards.flush_every.total_seconds() * 1000)
        keys = (*self._states[shard], *self._keys[shard])
        reply = await self._client.run(SEAL, keys, (who, claim, epoch, age, shards.batch))
        if not isinstance(reply, list):
            return None if reply is None else False
        epoch_there, number, count, fresh = reply
        return Sealed(shard, epoch_there.decode(), number, count, bool(fresh))

    async def age(self) -> float:
        """Seconds that the oldest waits, in all shards; what is on its way, since it was sealed. One trip."""
        asked = (self._client.call("HMGET", *state, "since", "sealed") for state in self._states)
        clock, *states = await asyncio.gather(self._client.call("TIME"), *asked)
        oldest = now = int(clock[0]) * 1_000_000 + int(clock[1])
        for since, sealed in states:
            oldest = min(oldest, int(since or 0) * 1000 or now, int(sealed or 0) or now)
        return (now - oldest) / 1e6

    async def acknowledge(self, batch: Batch) -> bool:
        """Forget a batch that is in SQL; False when it was not there any more."""
        keys = (*self._states[batch.shard], self._keys[batch.shard][-1])
        arguments = (batch.epoch, batch.number, self._kind)
        return bool(await self._client.run(ACKNOWLEDGE, keys, arguments))

    async def renumber(self, batch: Batch, above: int) -> bool:
        """Give a batch a larger number; False when it was not there any more."""
        arguments = (batch.epoch, batch.number, above)
        return bool(await self._client.run(RENUMBER, self._states[batch.shard], arguments))
