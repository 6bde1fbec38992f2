"""Reservations: amounts set aside before they are used, and what is raised when there is no room for them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from ephemera.patterns.usage._periods import Period

if TYPE_CHECKING:
    from ephemera.patterns.usage._meter import Meter


class Place(NamedTuple):
    """Where an organization's period is: its row, its shard, and the keys of the scripts."""

    organization_id: str
    period: Period
    row: str
    shard: int
    waiting: tuple[str, ...]  # pending, sealed, state
    own: tuple[str, str, str]  # totals, reservations, lapses


class Reservation:
    """An amount set aside: settle it with what was really used, or release it.

    As a block (`async with await meter.reserve(...) as reservation:`) it is released when not settled.
    """

    def __init__(self, meter: Meter, place: Place, identity: str) -> None:
        self._meter = meter
        self._place = place
        self.id = identity
        """What tells it from others; to end it in another process, see `Meter.reservation`."""
        self.ended = False

    @property
    def period(self) -> str:
        """The period that it counts for, also when it is settled after its end."""
        return self._place.period.name

    async def settle(self, **amounts: int) -> bool:
        """Count what was used and end the reservation; False when it was settled before.

        It counts also when the reservation has lapsed, for the work was done.
        """
        settled = await self._meter.settle(self._place, self.id, amounts)
        self.ended = True
        return settled

    async def release(self) -> bool:
        """End the reservation, nothing is used; False when it had ended or lapsed."""
        released = await self._meter.release(self._place, self.id)
        self.ended = True
        return released

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.ended:
            await self.release()

    def __repr__(self) -> str:
        return f"<Reservation {self.id!r} of {self._place.organization_id!r} in {self.period}>"
