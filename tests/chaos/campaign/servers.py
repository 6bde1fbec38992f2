"""The servers of a campaign, all behind proxies: a cache, a queue with its replica and Sentinels, PostgreSQL.

As `ephemera server-config` sets them, but stricter about what the queue may forget: the cache evicts and
keeps nothing over a restart; the queue does not evict, has each write in its file before it answers, and a
replica that Sentinels promote; SQL is the truth. The nodes of the queue know each other, and the Sentinels
them, by the ports of their proxies, so a line that is cut is cut for replication, too. Each service has a
database of its own on all of them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Self
from urllib.parse import unquote

import hiredis
import psycopg

from ephemera import embedded
from ephemera.embedded import LOOPBACK, Valkey, free_ports, start_on_free_ports
from ephemera.embedded._resp import exchange, open_socket
from ephemera.embedded._sentinel import NAME, SENTINELS, entries, start_sentinel
from ephemera.embedded._valkey import start_all
from ephemera.errors import EmbeddedError, ServerError
from ephemera.keyspace import SERVER_IDENTITY
from tests.chaos.campaign import SYSTEMS
from tests.chaos.campaign.proxy import Network, Proxy

DOWN_AFTER = 4000
"""Milliseconds of silence after which Sentinels replace the queue's master; shorter troubles are none."""
_PATIENCE = 60.0  # seconds
_AGAIN = 4.0  # seconds after which an order for a fail-over is repeated
_PLENTY = 512 * 1024 * 1024
_CACHE = {"maxmemory": str(_PLENTY), "maxmemory-policy": "allkeys-lru"}
_QUEUE = ("appendonly yes", "appendfsync always", "maxmemory-policy noeviction", f"maxmemory {_PLENTY}")


class Queue:
    """The queue's two nodes, each behind its proxy, and three Sentinels."""

    def __init__(self, network: Network) -> None:
        self._stack = ExitStack()
        ports = free_ports(4 + SENTINELS)
        self.nodes: list[Valkey] = []
        self.lines: list[Proxy] = []
        self._master = 0
        self._password = secrets.token_urlsafe(24)
        lines = ports[2:4]
        for place in (0, 1):
            self.lines.append(network.proxy(ports[place], lines[place]))
        following = ["", f"replicaof {LOOPBACK} {lines[0]}"]
        for place, follow in enumerate(following):
            settings = [*_QUEUE, f"replica-announce-ip {LOOPBACK}", f"replica-announce-port {lines[place]}"]
            node = Valkey(ports[place], [*settings, follow] if follow else settings, password=self._password)
            self.nodes.append(self._stack.enter_context(node))
        names = {port: secrets.token_hex(20) for port in ports[4:]}
        arguments = (names, lines, DOWN_AFTER, self._password)
        starting = [partial(start_sentinel, port, *arguments) for port in ports[4:]]
        self.sentinels = [self._stack.enter_context(each) for each in start_all(starting)]
        until(self.is_whole, "the queue's replica")

    def url(self, database: int) -> str:
        """Return the environment of a service."""
        hosts = ",".join(f"{LOOPBACK}:{each.port}" for each in self.sentinels)
        return (
            f"redis+sentinel://:{self._password}@{hosts}/{NAME}/{database}?sentinel_password={self._password}"
        )

    def master(self) -> int:
        """Which node the Sentinels call the master, by most of them."""
        votes: list[int] = []
        for each in self.sentinels:
            with suppress(OSError, ServerError):
                found = each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
                assert isinstance(found, list)
                votes.append(int(found[1]))
        if votes:
            named = max(sorted(set(votes)), key=votes.count)
            self._master = [line.port for line in self.lines].index(named)
        return self._master

    def is_whole(self) -> bool:
        """Whether the master leads, its replica is in step, and all Sentinels agree."""
        try:
            master = self.master()
            leads = self.nodes[master].role() == "master"
            state = str(self.nodes[1 - master].ask("INFO", "replication"))
            calm = all(_flags(each) == ["master", "slave"] for each in self.sentinels)
        except (OSError, ServerError, EmbeddedError):
            return False
        return leads and calm and "role:slave" in state and "master_link_status:up" in state

    def fail_over(self) -> None:
        """Have the replica take over in an orderly way: nothing that was acknowledged is lost."""
        before, ordered = self.master(), 0.0

        def moved() -> bool:
            nonlocal ordered
            if time.monotonic() - ordered > _AGAIN and self.master() == before:
                ordered = time.monotonic()
                with suppress(OSError, ServerError):  # not so soon after another one
                    self.sentinels[0].ask("SENTINEL", "FAILOVER", NAME, "COORDINATED")
            return self.master() != before

        until(moved, "an orderly fail-over")

    def stop(self) -> None:
        """End all of it."""
        self._stack.close()


class Servers:
    """All servers, from `with` to its end."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.postgres = stack.enter_context(embedded.postgres())
            self.cache = stack.enter_context(embedded.valkey(config=_CACHE))
            self.queue = start_on_free_ports(lambda: Queue(self._network))
            stack.callback(self.queue.stop)
            self._databases = {name: self.postgres.database(name) for name in SYSTEMS}
            socket = self._databases[SYSTEMS[0]].partition("host=")[2]
            self.sql_line = self._network.proxy(f"{unquote(socket)}/.s.PGSQL.5432")
            self.cache_line = self._network.proxy(self.cache.port)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def environment(self, system: str) -> dict[str, str]:
        """Where a system's processes find them, through the proxies."""
        number = SYSTEMS.index(system)
        return {
            "EPHEMERA_URL": f"redis://:{self.cache.password}@{LOOPBACK}:{self.cache_line.port}/{number}",
            "EPHEMERA_QUEUE_URL": self.queue.url(number),
            "EPHEMERA_DATABASE_URL": f"postgresql://postgres@{LOOPBACK}:{self.sql_line.port}/{system}?sslmode=disable",
        }

    def sql(self, system: str) -> psycopg.Connection[Any]:
        """A connection of the campaign's own to a system's database, past the proxy."""
        return psycopg.connect(self._databases[system], autocommit=True)

    def mark(self, name: str) -> None:
        """Mark the databases of a system that wants it, past the proxies."""
        for server in (self.cache, self.queue.nodes[self.queue.master()]):
            _ask_database(server, SYSTEMS.index(name), "SET", SERVER_IDENTITY.key(), name)

    def in_queue(self, name: str, *keys: str) -> int:
        """How many of a system's keys the queue has, past the proxies."""
        found = _ask_database(self.queue.nodes[self.queue.master()], SYSTEMS.index(name), "EXISTS", *keys)
        assert isinstance(found, int)
        return found


def _ask_database(server: Valkey, number: int, *words: str) -> object:
    with open_socket((LOOPBACK, server.port), 2.0) as connection:
        reader = hiredis.Reader()
        exchange(connection, reader, "AUTH", server.password or "")
        exchange(connection, reader, "SELECT", number)
        return exchange(connection, reader, *words)


def _flags(sentinel: Valkey) -> list[str]:
    """What a Sentinel thinks of the master and its replicas."""
    found = [entry for kind in ("MASTERS", "REPLICAS") for entry in entries(sentinel, kind)]
    return [dict(zip(entry[::2], entry[1::2], strict=True))["flags"] for entry in found]


def until(holds: Callable[[], object], what: str, seconds: float = _PATIENCE) -> None:
    """Return when something holds; raise when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)
