"""What the log says of a server that is lost and found again: each once, however many connections it has.

The logger is `ephemera.wire`. A WARNING says that the server was lost, or that the store opened without it,
with the reason. An INFO says that it is back: when every lost connection has lasted for a second, so that a
server which accepts connections and closes them again is one outage, and not one every second.
"""

from __future__ import annotations

import logging

log = logging.getLogger("ephemera.wire")


class OutageLog:
    """The lost connections of one server."""

    def __init__(self) -> None:
        self._lost: set[object] = set()

    def lose(self, connection: object, message: str, *args: object) -> None:
        """Note a connection that was lost, or could not be opened; the first one is logged."""
        if not self._lost:
            log.warning(message, *args)
        self._lost.add(connection)

    def regain(self, connection: object, name: object) -> None:
        """Note a connection that works; the last one that was lost is logged."""
        if connection in self._lost:
            self._lost.remove(connection)
            if not self._lost:
                log.info("%s: connected again", name)

    def forget(self, connection: object) -> None:
        """Leave out a connection that was closed on purpose."""
        self._lost.discard(connection)
