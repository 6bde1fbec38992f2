"""Shard channels of a cluster: each is heard from the master of its slot, and follows its slot.

When a slot moves or its master dies, the channel is joined again as soon as the map of slots names a master
that takes it, and the listener is told of the gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed, Unavailable
from ephemera.wire._subscriptions import Hub, Place, Subscription

# How often a newcomer asks for a new map of slots when its channel has just moved.
_TRIES = 4


class ShardChannels:
    """Subscriptions to shard channels, spread over the hubs of their slots' masters."""

    def __init__(self, hub_of: Callable[[bytes], Hub | None], refresh: Callable[[], Awaitable[None]]) -> None:
        self._hub_of = hub_of
        self._refresh = refresh
        # Where each is heard; None: nowhere at the moment, its slot is on the move.
        self._at: dict[tuple[Subscription, Place], Hub | None] = {}

    @property
    def settled(self) -> bool:
        """Whether every channel is heard."""
        return None not in self._at.values()

    async def join(self, listener: Subscription, wanted: list[Place]) -> None:
        """Subscribe at each channel's present place."""
        try:
            for place in wanted:
                await self._join(listener, place)
        except BaseException:
            await self.leave(listener, wanted)
            raise

    async def leave(self, listener: Subscription, wanted: list[Place]) -> None:
        """Unsubscribe wherever the channels are by now."""
        listener.end()
        for place in wanted:
            hub = self._at.pop((listener, place), None)
            if hub is not None:
                await hub.withdraw(listener, [place])

    def unsettle(self, place: Place) -> None:
        """Note that a channel is no longer heard: its slot has left the master it was heard from."""
        for (listener, known), hub in self._at.items():
            if known == place and hub is not None:
                hub.forget(listener, place)
                self._at[listener, place] = None

    async def rehome(self) -> None:
        """Move every subscription whose slot has another master than before; tell its listener of the gap."""
        moves = [
            self._move(listener, place)
            for (listener, place), hub in list(self._at.items())
            if hub is None or self._hub_of(place[1]) is not hub
        ]
        await asyncio.gather(*moves)

    async def aclose(self) -> None:
        """End every subscription."""
        for listener, _ in list(self._at):
            listener.end()
        self._at.clear()

    async def _join(self, listener: Subscription, place: Place) -> None:
        for _ in range(_TRIES):
            hub = self._hub_of(place[1])
            if hub is None:
                break
            self._at[listener, place] = hub  # already now: the slot may move as soon as it is joined
            try:
                await hub.join(listener, [place])
            except ServerError as error:
                if error.code != "MOVED":
                    raise
                if self._at.get((listener, place)) is not hub:
                    return  # a new map of slots has come meanwhile, and moves it
                del self._at[listener, place]
                await self._refresh()
            else:
                return
        raise Unavailable(place[1].decode("utf-8", "replace"), "no node serves its slot now")

    async def _move(self, listener: Subscription, place: Place) -> None:
        if (listener, place) not in self._at:
            return
        old, self._at[listener, place] = self._at[listener, place], None
        if old is not None:
            old.forget(listener, place)
        hub = self._hub_of(place[1])
        if hub is None:
            return
        try:
            await hub.join(listener, [place], after_gap=True)
        except (ConnectionFailed, ServerError, StoreClosed):
            return  # still on the move: the next map of slots tries again
        if (listener, place) not in self._at:  # it left meanwhile
            await hub.withdraw(listener, [place])
            return
        self._at[listener, place] = hub
