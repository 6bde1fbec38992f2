"""Reservations: amounts set aside before they are used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self


class Reservation:
    """Amounts that are set aside: settle them with what was really used, or release them.

    As a block (`async with await store[USAGE].reserve(...) as reservation:`) it is released unless settled.
    """

    def __init__(
        self,
        organization_id: str,
        period: str,
        reservation_id: str,
        settle: Callable[[dict[str, int]], Awaitable[bool]],
        release: Callable[[], Awaitable[bool]],
    ) -> None:
        self.id = reservation_id
        """Identifies it in another process: see `BoundUsage.reservation`."""
        self.period = period
        """The period that it counts for, even when it is settled after the period's end."""
        self.ended = False
        self._organization_id = organization_id
        self._settle = settle
        self._release = release

    async def settle(self, **amounts: int) -> bool:
        """Count what was used and end the reservation; False when it was settled before.

        It counts even when the reservation has expired, because the work was done.
        """
        settled = await self._settle(amounts)
        self.ended = True
        return settled

    async def release(self) -> bool:
        """End the reservation without any use; False when it had ended or expired."""
        released = await self._release()
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
        return f"<Reservation {self.id!r} of {self._organization_id!r} in {self.period}>"
