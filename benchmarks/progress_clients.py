"""Clients of server-sent events on raw sockets: `python -m benchmarks.progress_clients PORT PATH COUNT`.

It is driven by lines on standard input. `connect` opens all connections and answers when each has had its
first event; a number of events answers with the p99 of their way to all clients since the last such line, in
milliseconds, once all have arrived.
"""

from __future__ import annotations

import re
import select
import socket
import sys
import time

_AT = re.compile(rb'"at":(\d+)')
_PATIENCE = 30.0  # seconds
_AT_A_TIME = 50  # connections that are being opened, less than a server's backlog


class Clients:
    """All connections, and how long events took to reach them."""

    def __init__(self, port: int, path: str, count: int) -> None:
        self._port = port
        self._request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
        self._count = count
        self._sockets: dict[int, socket.socket] = {}
        self._rest: dict[int, bytes] = {}
        self._epoll = select.epoll()
        self._took: list[int] = []
        self._seen: dict[int, int] = {}

    def connect(self) -> None:
        """Open all connections, each with its first event."""
        while len(self._sockets) < self._count:
            for _ in range(min(_AT_A_TIME, self._count - len(self._sockets))):
                self._open()
            self._read_until(len(self._sockets))
        self._took.clear()

    def report(self, events: int) -> float:
        """The p99 in milliseconds, when all clients have had this many events more."""
        self._read_until(events * self._count)
        if set(self._seen.values()) != {events + 1}:
            raise RuntimeError(f"not all clients had each of {events} events once")
        self._seen = dict.fromkeys(self._seen, 1)
        took = sorted(self._took)
        self._took = []
        return took[int(0.99 * len(took))] / 1e6

    def _open(self) -> None:
        patience = time.monotonic() + _PATIENCE
        while True:
            try:
                opened = socket.create_connection(("127.0.0.1", self._port))
                break
            except ConnectionRefusedError:
                if time.monotonic() > patience:
                    raise
                time.sleep(0.05)
        opened.sendall(self._request)
        opened.setblocking(False)
        self._sockets[opened.fileno()] = opened
        self._rest[opened.fileno()] = b""
        self._epoll.register(opened.fileno(), select.EPOLLIN)

    def _read_until(self, arrivals: int) -> None:
        patience = time.monotonic() + _PATIENCE
        while len(self._took) < arrivals:
            if time.monotonic() > patience:
                raise RuntimeError(f"{len(self._took)} of {arrivals} events arrived in {_PATIENCE:g} s")
            for number, _ in self._epoll.poll(1.0):
                self._read(number)

    def _read(self, number: int) -> None:
        data = self._sockets[number].recv(65_536)
        now = time.monotonic_ns()
        if not data:
            raise RuntimeError("the application closed a connection")
        *events, self._rest[number] = (self._rest[number] + data).split(b"\n\n")
        for event in events:
            found = _AT.search(event)
            if found:
                self._took.append(now - int(found[1]))
                self._seen[number] = self._seen.get(number, 0) + 1

    def idle(self) -> bool:
        """Read what comes until a line does; True when one has."""
        ready = self._epoll.poll(0.05)
        for number, _ in ready:
            self._read(number)
        return bool(select.select([sys.stdin], [], [], 0)[0])


def main() -> None:
    """Do as the lines say."""
    clients = Clients(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    while True:
        while not clients.idle():
            pass
        line = sys.stdin.readline().strip()
        if not line:
            return
        if line == "connect":
            clients.connect()
            print("connected", flush=True)
        else:
            print(clients.report(int(line)), flush=True)


if __name__ == "__main__":
    main()
