"""What passes between Redis and a database: batches, what became of them, and the port that a database fills.

A batch is known by its name, shard, epoch and number. Numbers of one shard only grow, and a shard has one
sealed batch at a time, so a database remembers one number for each shard: what is not larger was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""The values of one row, in the order of its batch's columns."""


class Unread(NamedTuple):
    """A record that is not of its declared type, as it was found, and why."""

    data: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that reach SQL together, once."""

    name: str
    shard: int
    epoch: str
    number: int
    columns: tuple[str, ...]
    rows: list[Row]
    unread: tuple[Unread, ...] = ()

    def records(self) -> list[dict[str, Any]]:
        """The rows as dicts, for those who look at what was written."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def __repr__(self) -> str:
        return f"<Batch {self.number} of {self.name!r}, shard {self.shard}: {len(self.rows)} rows>"


@dataclass(frozen=True, slots=True)
class Written:
    """What a sink did with a batch: wrote it now, or had it before."""

    now: bool
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """A sink knows a larger number of another epoch: Redis lost its own, and its clock was set back."""

    number: int


class Sink(Protocol):
    """The port to a database; `postgres` has ours, and `tests/patterns/sink_contract.py` tests any."""

    async def apply(self, batch: Batch) -> Written | Behind:
        """Write the rows and the batch's number in one transaction, unless the number was there.

        A number is there when the last one of the shard is at least as large and of the same epoch; if it
        is of another epoch, the answer is `Behind`. Rows that the database refuses are put aside, with the
        reason, in the same transaction. Any exception means that nothing was written, as far as is known:
        the batch is brought again.
        """

    async def write(self, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Write rows at once, without a batch; for those who cannot wait for Redis to come back."""
