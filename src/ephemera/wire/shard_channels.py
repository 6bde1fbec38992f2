"""Shard channels of a cluster: each is heard from its slot's master, and follows its slot when it moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemera.wire.subscriptions import Hub, Place, Subscription


class ShardChannels:
    """Subscriptions to shard channels, spread over the hubs of their slots' masters."""

    def __init__(self, hub_of: Callable[[bytes], Hub | None]) -> None:
        self._hub_of = hub_of
        self._at: dict[tuple[Subscription, Place], Hub] = {}

    async def join(self, listener: Subscription, wanted: list[Place]) -> None:
        """Subscribe at each channel's present place."""
        try:
            for place in wanted:
                hub = self._hub_of(place[1])
                if hub is None:
                    raise Unavailable(place[1].decode("utf-8", "replace"), "no node serves its slot")
                await hub.join(listener, [place])
                self._at[listener, place] = hub
        except BaseException:
            await self.leave(listener, wanted)
            raise

    async def leave(self, listener: Subscription, wanted: list[Place]) -> None:
        """Unsubscribe wherever the channels are by now."""
        listener.end()
        for place in wanted:
            hub = self._at.pop((listener, place), None)
            if hub is not None:
                await hub.leave(listener, [place])

    async def rehome(self) -> None:
        """Move every subscription whose slot has another master than before; tell its listener of the gap."""
        moves = [
            self._move(listener, place, hub)
            for (listener, place), hub in list(self._at.items())
            if self._hub_of(place[1]) not in (hub, None)
        ]
        await asyncio.gather(*moves)

    async def _move(self, listener: Subscription, place: Place, old: Hub) -> None:
        hub = self._hub_of(place[1])
        if hub is None:
            return
        old.forget(listener, place)
        try:
            await hub.join(listener, [place])
        except (ConnectionFailed, ServerError, StoreClosed):
            return  # still on the move: the next map of slots tries again
        self._at[listener, place] = hub
        hub.tell_gap(place)

    async def aclose(self) -> None:
        """End every subscription."""
        for listener, _ in list(self._at):
            listener.end()
        self._at.clear()
