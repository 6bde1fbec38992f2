"""A connection pool that closes what a quieter time does not need.

SQLAlchemy's pool keeps every connection of its busiest moment, and each is a process of PostgreSQL. This one
uses the connection that was returned last, so that the surplus stays unused, and a timer closes what was not
used for `idle_timeout` seconds. There is no task to start or stop: returning a connection starts the timer.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any, Self, cast

from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry
from sqlalchemy.util import greenlet_spawn
from sqlalchemy.util.queue import Empty

_RETURNED = "ephemera: returned at"
_log = logging.getLogger("ephemera.sql")


class ShrinkingPool(AsyncAdaptedQueuePool):
    """The `poolclass` of an engine that closes idle connections: `create_async_engine(url, poolclass=...)`.

    It takes what SQLAlchemy's pool takes and `idle_timeout`, the seconds after which an unused connection is
    closed. Connections are closed on the event loop that last returned one.
    """

    _sqla_logger_namespace = "sqlalchemy.pool.impl.ShrinkingPool"  # what SQLAlchemy logs is not ours

    def __init__(
        self,
        creator: Any,
        idle_timeout: float = 30.0,  # SQLAlchemy finds no keyword-only argument
        **options: Any,
    ) -> None:
        super().__init__(creator, **{"use_lifo": True, **options})
        self._idle_timeout = idle_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None

    def recreate(self) -> Self:
        """A new pool with the same settings, as `dispose` of an engine makes it."""
        pool = cast("Self", super().recreate())
        pool._idle_timeout = self._idle_timeout
        return pool

    def dispose(self) -> None:
        """Close all connections that are not in use."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        record.info[_RETURNED] = monotonic()
        super()._do_return_conn(record)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the garbage collector returned it
            return
        if self._timer is None or self._loop is not loop:
            self._schedule(loop, self._idle_timeout)

    def _schedule(self, loop: asyncio.AbstractEventLoop, delay: float) -> None:
        self._loop, self._timer = loop, loop.call_later(delay, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._closing is None:
            self._closing = loop.create_task(self._close_idle(loop), name="close idle SQL connections")

    async def _close_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            idle, next_in = self._remove_idle()
            if next_in is not None:
                self._schedule(loop, next_in)
            for record in idle:
                await greenlet_spawn(record.close)
            if idle:
                _log.debug("closed %d idle connections", len(idle))
        finally:
            self._closing = None

    def _remove_idle(self) -> tuple[list[ConnectionPoolEntry], float | None]:
        """The connections to close, which no caller can get now; and the seconds until the next is due."""
        records: list[ConnectionPoolEntry] = []
        try:
            while True:
                records.append(self._pool.get(block=False))
        except Empty:
            pass
        now = monotonic()
        due = [record.info.get(_RETURNED, now) + self._idle_timeout for record in records]
        idle = [record for record, at in zip(records, due, strict=True) if at <= now]
        for record, at in zip(reversed(records), reversed(due), strict=True):  # the last one is used first
            if at > now:
                self._pool.put(record, block=False)
        for _ in idle:
            self._dec_overflow()
        return idle, min((at - now for at in due if at > now), default=None)
