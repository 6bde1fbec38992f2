"""A session's read, started before it is needed, so that it travels with whatever else is asked meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ephemera.keyspace.access import COUNTED, size_of

if TYPE_CHECKING:
    import asyncio

    from ephemera.patterns.sessions.live import LiveSessions

S = TypeVar("S", bound=msgspec.Struct)


class Reading(msgspec.Struct, Generic[S], eq=False, gc=False):
    """The read of a session, which is on its way from the moment this is made (`LiveSessions.reading`)."""

    _sessions: LiveSessions[S]
    _reply: asyncio.Future[Any] | None = None
    _problem: Exception | None = None

    def __repr__(self) -> str:
        return f"<Reading of {self._sessions!r}>"  # what was read is nobody's who looks at a log

    @property
    def is_here(self) -> bool:
        """Whether `take` need not be waited for."""
        return self._reply is None or self._reply.done()

    def take(self) -> S | None:
        """What `session` gives, when it is here."""
        stats, reply = self._sessions.stats, None
        try:
            if self._reply is not None:
                reply = self._reply.result()
            elif self._problem is not None:
                raise self._problem
        except COUNTED:
            stats.errors += 1
            raise
        if reply is not None:
            stats.bytes_read += len(reply) if reply.__class__ is bytes else size_of(reply)
            session = self._sessions.decode(reply)
            if session is not None:
                stats.hits += 1
                return session
            stats.undecodable += 1
        stats.misses += 1
        return None

    async def session(self) -> S | None:
        """The session; None when there is none (any more). `ConnectionFailed` when Redis cannot be asked."""
        if self._reply is not None and not self._reply.done():
            try:  # noqa: SIM105 - contextlib.suppress would be called for each session
                await self._reply
            except COUNTED:
                pass  # `take` counts and raises it
        return self.take()

    def let_go(self) -> None:
        """Nobody will ask for the session any more; the read itself still lets it slide."""
        reply = self._reply
        if reply is None:
            return
        if not reply.done():
            # Not cancelled, because the wire does not bring a server a script for a caller who has left.
            reply.add_done_callback(_seen)
        elif not reply.cancelled():
            reply.exception()


def _seen(reply: asyncio.Future[Any]) -> None:
    """Take note of an error, so that it is not reported as overlooked."""
    if not reply.cancelled():
        reply.exception()
