"""A sample of the commands that a server executes, by MONITOR on a connection of its own.

MONITOR has no reply of its own after its `OK`: the server sends a line for each command of every client until
the connection ends. The lines are received as replies to commands that were never sent, a fixed number of
them, so neither this process nor the server's output buffer can fill up.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ephemera.wire._connection import Connection
from ephemera.wire._dedicated_connections import NonRecoveringOwner
from ephemera.wire._handshake import Endpoint, open_connection
from ephemera.wire._packed_commands import pack_here


class CommandSample:
    """The reply handler of MONITOR, and of every line after it."""

    def __init__(self, connection: Connection, at_most: int) -> None:
        self.lines: list[bytes] = []
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._at_most = at_most
        self._started = False

    def done(self) -> bool:
        """Whether it is complete."""
        return self.finished.done()

    def set_result(self, line: Any) -> None:
        """Expect the lines once the server has agreed; keep each of them."""
        if not self._started:
            self._started = True
            self._connection.waiting.extend([self] * self._at_most)
            return
        self.lines.append(line)
        if len(self.lines) == self._at_most and not self.finished.done():
            self.finished.set_result(None)

    def set_exception(self, exception: BaseException) -> None:
        """The server refused; or the connection ended, which leaves what was seen until then."""
        if self.finished.done():
            return
        if self._started:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(exception)


class _Listener(NonRecoveringOwner):
    def expects_silence(self) -> bool:
        """An idle server sends nothing."""
        return True


async def sample_commands(endpoint: Endpoint, seconds: float, at_most: int) -> list[bytes]:
    """The lines of MONITOR during this many seconds, or the first `at_most` of them."""
    connection = await open_connection(endpoint, _Listener(endpoint))
    sample = CommandSample(connection, at_most)
    try:
        connection.send(pack_here(("MONITOR",)), sample)
        await asyncio.wait([sample.finished], timeout=seconds)
        if sample.finished.done():
            sample.finished.result()
    finally:
        connection.abort("the sample is complete")
        await connection.lost
    return sample.lines
