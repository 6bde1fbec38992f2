"""The connections of this process: what waits for each, and what happens to one that does not take it."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeVar

from ephemera.errors import SlowConsumer

if TYPE_CHECKING:
    from ephemera.patterns.fanout._runtime import BoundFanout

M = TypeVar("M")


class Missing(Enum):
    """The type of `MISSED`."""

    MISSED = "missed"


MISSED: Literal[Missing.MISSED] = Missing.MISSED
"""In place of messages that may have been lost: look for yourself."""


class Connection(Generic[M]):
    """One connection of a user: an async iterator of messages, and of `MISSED` where some may be lost."""

    def __init__(self, fanout: BoundFanout[M], key: str, connection_id: str) -> None:
        self.key = key
        self.id = connection_id
        """Its name in the user's list, `<server>:<connection>`."""
        self.asked = False
        """Whether the server was asked to list it."""
        self.entered = False
        """Whether the server lists it."""
        self.cut_off = False
        """Whether its process did not hear what was sent to it, and it was not told yet."""
        self.closed = False
        self._fanout = fanout
        self._waiting: deque[M | Literal[Missing.MISSED]] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self._too_slow = False
        self.dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it was too slow."""

    async def __aenter__(self) -> Self:
        try:
            await self._fanout.enter(self)
        except BaseException:  # cancelled on the way in: if it is listed by now, its deadline ends that
            self.close()
            self._fanout.forget(self)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self._fanout.leave(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M | Literal[Missing.MISSED]:
        while not self._waiting or self._too_slow:
            if self._too_slow:
                raise SlowConsumer(self.key, self._fanout.declaration.backlog)
            if self.closed:
                raise StopAsyncIteration
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self._waiting.popleft()

    def deliver(self, message: M | Literal[Missing.MISSED]) -> None:
        """Have a message wait to be taken; one too many drops the connection."""
        if message is MISSED and self._waiting and self._waiting[-1] is MISSED:
            return
        if len(self._waiting) >= self._fanout.declaration.backlog:
            self._too_slow = True
            self._waiting.clear()
            if not self.dropped.done():
                self.dropped.set_result(None)
        elif not self._too_slow:
            self._waiting.append(message)
        self._wake()

    def close(self) -> None:
        """End the iteration, after what has arrived."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
