"""TCP proxies of ours between the services and their servers, whose lines can be made bad.

A `Network` runs its proxies in one thread of its own, so that neither the load nor a fault that blocks
keeps bytes from flowing. What can be done to a line:

    cut         connections end with RST, and new ones too, as when a host is gone
    freeze      connections stand and bytes are held, both ways; `heal` releases them: they arrive late
    half-open   requests arrive and answers vanish; `heal` ends these connections, as their bytes are lost
    delay       every piece of data is late by this many seconds
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Literal, TypeVar

from ephemera.embedded import LOOPBACK, free_ports

T = TypeVar("T")
Trouble = Literal["cut", "freeze", "half-open", "delay"]
TROUBLES: tuple[Trouble, ...] = ("cut", "freeze", "half-open", "delay")
_PIECE = 65536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time: closing sends RST


class Proxy:
    """A line to one server: a port of loopback, or the path of a unix socket, behind a port of its own."""

    def __init__(self, server: int | str, port: int) -> None:
        self.port = port
        self.accepted = 0
        self._server = server
        self._flows: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._losing_answers = False
        self._late = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client to the server, until either ends or the line is cut."""
        self.accepted += 1
        if self._refusing:
            _reset(writer)
            return
        try:
            there, back = await self._connect()
        except OSError:
            _reset(writer)
            return
        tasks = [
            asyncio.create_task(self._flow(reader, back, answers=False)),
            asyncio.create_task(self._flow(there, writer, answers=True)),
        ]
        self._flows.update(tasks)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._flows.difference_update(tasks)
            _reset(back)
            _reset(writer)

    def trouble(self, kind: Trouble, seconds: float = 0.0) -> None:
        """Make the line bad; `seconds` is how late data is for `delay`. In the network's thread."""
        if kind == "cut":
            self._refusing = True
            self.end_all()
        elif kind == "freeze":
            self._open.clear()
        elif kind == "half-open":
            self._losing_answers = True
        else:
            self._late = seconds

    def heal(self) -> None:
        """Make the line good again. In the network's thread."""
        if self._losing_answers:
            self.end_all()
        self._refusing = self._losing_answers = False
        self._late = 0.0
        self._open.set()

    def end_all(self) -> None:
        """End all connections there are with RST."""
        for flow in self._flows:
            flow.cancel()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._server, str):
            return await asyncio.open_unix_connection(self._server)
        return await asyncio.open_connection(LOOPBACK, self._server)

    async def _flow(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await source.read(_PIECE):
                if self._late:
                    await asyncio.sleep(self._late)
                await self._open.wait()
                if answers and self._losing_answers:
                    continue
                sink.write(data)
                await sink.drain()


class Network:
    """All proxies of a campaign, in a thread; `with` it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._listeners: list[asyncio.Server] = []
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def proxy(self, server: int | str, port: int | None = None) -> Proxy:
        """A line to a server, on the port given or a free one."""
        return self._do(self._listen(server, port or free_ports(1)[0]))

    def trouble(self, proxy: Proxy, kind: Trouble, seconds: float = 0.0) -> None:
        """Make a line bad, from any thread."""
        self._loop.call_soon_threadsafe(proxy.trouble, kind, seconds)

    def heal(self, proxy: Proxy) -> None:
        """Make a line good again, from any thread."""
        self._loop.call_soon_threadsafe(proxy.heal)

    async def _listen(self, server: int | str, port: int) -> Proxy:
        proxy = Proxy(server, port)
        entrance = socket.create_server((LOOPBACK, port))
        self._listeners.append(await asyncio.start_server(proxy.serve, sock=entrance))
        self._proxies.append(proxy)
        return proxy

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for proxy in self._proxies:
            proxy.heal()
            proxy.end_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)

    def _do(self, coroutine: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST, if it is TCP; a unix socket just ends."""
    connected = writer.get_extra_info("socket")
    if connected is not None and connected.family == socket.AF_INET:
        with suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
