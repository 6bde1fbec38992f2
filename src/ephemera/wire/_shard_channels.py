"""Shard channels of a cluster: each is subscribed to at the master of its slot, and follows its slot.

When a slot moves or its master dies, the channel is subscribed to again as soon as the slot map names a
master that accepts it, and its subscribers are notified of the gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed, Unavailable
from ephemera.wire._subscriptions import Channel, Hub, Subscription

# How often a new subscription reads the slot map again when its channel has just moved.
_ATTEMPTS = 4


class ShardChannels:
    """Subscriptions to shard channels, spread over the hubs of their slots' masters."""

    def __init__(self, hub_of: Callable[[bytes], Hub | None], refresh: Callable[[], Awaitable[None]]) -> None:
        self._hub_of = hub_of
        self._refresh = refresh
        # The hub of each; None while its slot is moving.
        self._hubs: dict[tuple[Subscription, Channel], Hub | None] = {}

    @property
    def all_subscribed(self) -> bool:
        """Whether no channel is between two masters."""
        return None not in self._hubs.values()

    async def join(self, subscription: Subscription, channels: list[Channel]) -> None:
        """Subscribe at the present master of each channel."""
        try:
            for channel in channels:
                await self._join(subscription, channel)
        except BaseException:
            await self.leave(subscription, channels)
            raise

    async def leave(self, subscription: Subscription, channels: list[Channel]) -> None:
        """Unsubscribe wherever the channels are by now."""
        subscription._end()
        for channel in channels:
            hub = self._hubs.pop((subscription, channel), None)
            if hub is not None:
                await hub.withdraw(subscription, [channel])

    def on_moved(self, channel: Channel) -> None:
        """Note that the slot of a channel has left the master where it was subscribed to."""
        for (subscription, known), hub in self._hubs.items():
            if known == channel and hub is not None:
                hub.remove(subscription, channel)
                self._hubs[subscription, channel] = None

    async def follow_slots(self) -> None:
        """Move every subscription whose slot has a new master."""
        moves = [
            self._move(subscription, channel)
            for (subscription, channel), hub in list(self._hubs.items())
            if hub is None or self._hub_of(channel[1]) is not hub
        ]
        await asyncio.gather(*moves)

    async def aclose(self) -> None:
        """End every subscription."""
        for subscription, _ in list(self._hubs):
            subscription._end()
        self._hubs.clear()

    async def _join(self, subscription: Subscription, channel: Channel) -> None:
        for _ in range(_ATTEMPTS):
            hub = self._hub_of(channel[1])
            if hub is None:
                break
            self._hubs[subscription, channel] = hub  # before it is joined: the slot may move at once
            try:
                await hub.join(subscription, [channel])
            except ServerError as error:
                if error.code != "MOVED":
                    raise
                if self._hubs.get((subscription, channel)) is not hub:
                    return  # a new slot map has arrived in the meantime, and moves it
                del self._hubs[subscription, channel]
                await self._refresh()
            else:
                return
        raise Unavailable(channel[1].decode("utf-8", "replace"), "no node serves its slot now")

    async def _move(self, subscription: Subscription, channel: Channel) -> None:
        if (subscription, channel) not in self._hubs:
            return
        old, self._hubs[subscription, channel] = self._hubs[subscription, channel], None
        if old is not None:
            old.remove(subscription, channel)
        hub = self._hub_of(channel[1])
        if hub is None:
            return
        try:
            await hub.join(subscription, [channel], after_gap=True)
        except (ConnectionFailed, ServerError, StoreClosed):
            return  # still moving: the next slot map tries again
        if (subscription, channel) not in self._hubs:  # it has left since
            await hub.withdraw(subscription, [channel])
            return
        self._hubs[subscription, channel] = hub
