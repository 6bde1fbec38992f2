"""A session's read, started before it is needed, so that it travels with whatever else is asked meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ephemera.keyspace.access import COUNTED, size_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ephemera.patterns.sessions.live import LiveSessions

S = TypeVar("S", bound=msgspec.Struct)


class Reading(msgspec.Struct, Generic[S], eq=False, gc=False):
    """The read of a session, which is on its way from the moment this is made (`LiveSessions.reading`)."""

    _sessions: LiveSessions[S]
    _reply: Awaitable[Any] | None = None
    _problem: Exception | None = None

    def __repr__(self) -> str:
        return f"<Reading of {self._sessions!r}>"  # what was read is nobody's who looks at a log

    async def session(self) -> S | None:
        """The session; None when there is none (any more). `ConnectionFailed` when Redis cannot be asked."""
        stats, reply = self._sessions.stats, None
        try:
            if self._problem is not None:
                raise self._problem
            if self._reply is not None:
                reply = await self._reply
        except COUNTED:
            stats.errors += 1
            raise
        session = None
        if reply is not None:
            stats.bytes_read += len(reply) if reply.__class__ is bytes else size_of(reply)
            session = self._sessions.decode(reply)
        if session is None:
            stats.misses += 1
            stats.undecodable += reply is not None
        else:
            stats.hits += 1
        return session

    def let_go(self) -> None:
        """Nobody will ask for the session any more; the read itself still lets it slide."""
        reply = self._reply
        if isinstance(reply, asyncio.Future):
            if not reply.done():
                # Not cancelled, because the wire does not bring a server a script for a caller who has left.
                reply.add_done_callback(_seen)
            elif not reply.cancelled():
                reply.exception()


def _seen(reply: asyncio.Future[Any]) -> None:
    """Take note of an error, so that it is not reported as overlooked."""
    if not reply.cancelled():
        reply.exception()
