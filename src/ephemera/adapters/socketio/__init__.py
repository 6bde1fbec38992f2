"""python-socketio: a client manager for several server processes. Needs the extra `socketio`.

    server = socketio.AsyncServer(client_manager=AsyncRedisManager("redis://localhost"))

*Messages* go over one channel of pub/sub, in the format of python-socketio's own manager: processes with
either reach each other, and so does one that only emits. On a cluster every node passes them on.

*When Redis is down.* An event still reaches the clients of its own process. It is lost to those of others,
which is logged; they are subscribed again when the server is back.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from typing import Any

from ephemera._outage_log import OutageLog
from ephemera.errors import ConnectionFailed, MissingExtra, StoreClosed

if importlib.util.find_spec("socketio") is None:
    raise MissingExtra("ephemera.adapters.socketio needs python-socketio", "socketio", "python-socketio")

from socketio.async_pubsub_manager import AsyncPubSubManager

from ephemera.adapters._servers import LoopClients
from ephemera.wire import parse_url

__all__ = ["AsyncRedisManager"]

_PAUSE = 0.5  # seconds between two attempts to subscribe


class AsyncRedisManager(AsyncPubSubManager):
    """The client manager of an `AsyncServer`, in place of python-socketio's `AsyncRedisManager`.

    Args:
        url: The server, Sentinels or cluster, as for `connect`.
        channel: The channel that all server processes share.
        write_only: True in a process that emits and has no clients.
        logger: Where to log; by default the log of the server.
        json: Another JSON module, for a process that only emits; a server has its own.

    """

    name = "ephemera"

    def __init__(
        self,
        url: str = "redis://localhost:6379/0",
        channel: str = "socketio",
        write_only: bool = False,
        logger: Any = None,
        json: Any = None,
    ) -> None:
        parse_url(url)
        super().__init__(channel=channel, write_only=write_only, logger=logger, json=json)
        self._clients = LoopClients(url)

    async def aclose(self) -> None:
        """Disconnect what the running loop uses; its end does the same."""
        await self._clients.aclose()

    async def _publish(self, data: Any) -> None:
        """Publish for the other processes; this one has handled it."""
        client = await self._clients.get()
        try:
            await client.call("PUBLISH", self.channel, self.json.dumps(data))
        except ConnectionFailed as problem:
            self._get_logger().error("other processes do not get a %s: %s", data.get("method"), problem)

    async def _listen(self) -> AsyncIterator[bytes]:
        """What other processes publish, even after an outage."""
        outages = OutageLog(self._get_logger())
        while True:
            try:
                client = await self._clients.get()
                async with client.subscribe(self.channel) as messages:
                    outages.regain(self, "subscribed to %r again", self.channel)
                    async for message in messages:
                        if message.lost:
                            self._get_logger().warning("events of other processes may have been missed")
                        else:
                            yield message.data
            except (ConnectionFailed, StoreClosed) as problem:
                outages.lose(self, "cannot subscribe to %r yet: %s", self.channel, problem)
            await asyncio.sleep(_PAUSE)
