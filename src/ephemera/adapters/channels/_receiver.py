"""Messages in transit to the consumers of this process.

All channels of a process share one queue on the server. While any consumer waits, one task takes what is
there, and hands it out to a buffer for each channel. So a consumer that is cancelled loses no message of
another, and any number of consumers need one connection. Messages for a consumer that does not come back are
dropped after their expiry.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from ephemera.adapters._servers import LoopClients
from ephemera.errors import ConnectionFailed, ServerError, StoreClosed

logger = logging.getLogger("ephemera.adapters.channels")

_BATCH = 100  # messages taken in one round trip
IDLE = 5  # seconds that a blocking command waits for a message
_PAUSE = 0.5  # seconds between two attempts while the server is down


class ReceiveBuffer:
    """The messages of one channel that no consumer has taken; when it is full, the oldest is dropped."""

    def __init__(self, capacity: int) -> None:
        self._messages: deque[Any] = deque(maxlen=capacity)
        self._waiters: list[asyncio.Future[None]] = []
        self.used_at = monotonic()

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer waits for a message."""
        return bool(self._waiters)

    def put_nowait(self, message: Any) -> None:
        """Add a message, and wake the consumers; they may be on another loop."""
        self._messages.append(message)
        self.used_at = monotonic()
        for waiter in list(self._waiters):
            with suppress(RuntimeError):  # its loop was closed under it
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    def get_nowait(self) -> Any:
        """Take the oldest message."""
        return self._messages.popleft()

    def qsize(self) -> int:
        """How many messages it has."""
        return len(self._messages)

    def empty(self) -> bool:
        """Whether it has no message."""
        return not self._messages

    def full(self) -> bool:
        """Whether the next message drops one."""
        return len(self._messages) == self._messages.maxlen

    async def get(self, ensure_received: Callable[[], None]) -> Any:
        """Take the oldest message, waiting for it; the callback makes sure that messages are received."""
        while not self._messages:
            ensure_received()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        return self._messages.popleft()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def take(clients: LoopClients, key: str, count: int) -> list[bytes]:
    """Take messages from a queue, waiting some seconds for the first.

    There may be none, for example because the server is down: a caller that waits for messages asks again.
    """
    try:
        client = await clients.get()
        taken = await client.call("ZPOPMIN", key, count)
        if taken:
            return [message for message, _ in taken]
        popped = await client.call("BZPOPMIN", key, IDLE)
    except (ConnectionFailed, StoreClosed):  # the wire logs an outage, and connects again
        await asyncio.sleep(_PAUSE)
        return []
    except ServerError as problem:
        logger.warning("messages cannot be received: %s", problem)
        await asyncio.sleep(IDLE)
        return []
    return [] if popped is None else [popped[1]]


async def keep_receiving(
    clients: LoopClients, key: str, deliver: Callable[[bytes], None], is_awaited: Callable[[], bool]
) -> None:
    """Hand out what arrives in a queue for as long as anyone waits for it."""
    while is_awaited():
        for stored in await take(clients, key, _BATCH):
            deliver(stored)
