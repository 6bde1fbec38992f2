"""Local entries while the tracking connection is lost, and after everything was flushed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.keyspace import Store
from ephemera.patterns.cache import cache_engine
from tests.patterns.profiles import CATALOGUE, COPIED, Profile, Table, user
from tests.wire.conditions import eventually
from tests.wire.forwarders import Forwarder, forwarding


@asynccontextmanager
async def a_reader_behind_a_line(server: Valkey) -> AsyncIterator[tuple[Store, Store, Forwarder]]:
    """A store whose connection can be cut and held, and one that writes directly."""
    async with (
        forwarding(server) as line,
        keyspace.connect(f"redis://{line.address}?timeout=5&connect_timeout=20", CATALOGUE) as reader,
        keyspace.connect(server.url, CATALOGUE) as writer,
    ):
        yield reader, writer, line


@pytest.mark.standalone("it is about the connection of the client of one server")
async def test_lost_tracking_ends_the_trust_before_the_reconnection(server: Valkey) -> None:
    """A put while the reader cannot reconnect: its first read afterwards is the new value."""
    async with a_reader_behind_a_line(server) as (reader, writer, line):
        table, who = Table(), user()
        table.rows[who] = Profile("old")
        for _ in range(2):
            assert await reader[COPIED].get_or_load(table.load, user_id=who) == Profile("old")
        local: Any = cache_engine(reader[COPIED]).entries.local
        entry = local.get(COPIED.keyspace.key(user_id=who))
        assert entry is not None
        assert entry.trusted_until > monotonic()

        line.gate.clear()  # the next connection stays in its handshake
        line.cut()
        await eventually(lambda: not reader.client().up)
        held = local.get(COPIED.keyspace.key(user_id=who))
        assert held is None or held.trusted_until <= monotonic()  # at once, not at its `max_age`
        await writer[COPIED].put(Profile("new"), user_id=who)
        assert not reader.client().up

        line.gate.set()
        await eventually(lambda: reader.client().up)
        assert await reader[COPIED].get_or_load(table.load, user_id=who) == Profile("new")


@pytest.mark.standalone("it is about the connection of the client of one server")
async def test_a_flush_ends_local_entries_within_a_round_trip(server: Valkey) -> None:
    """After FLUSHDB a local entry is dropped by the server's push: long before its `max_age` of 30 s."""
    async with (
        keyspace.connect(server.url, CATALOGUE) as reader,
        keyspace.connect(server.url, CATALOGUE) as writer,
    ):
        table, who = Table(), user()
        table.rows[who] = Profile("old")
        for _ in range(2):
            assert await reader[COPIED].get_or_load(table.load, user_id=who) == Profile("old")
        local: Any = cache_engine(reader[COPIED]).entries.local
        key = COPIED.keyspace.key(user_id=who)
        assert local.get(key) is not None

        await writer.call("FLUSHDB")
        table.rows[who] = Profile("new")

        def is_gone() -> bool:
            entry = local.get(key)
            return entry is None or entry.trusted_until <= monotonic()

        await eventually(is_gone, within=5)
        assert await reader[COPIED].get_or_load(table.load, user_id=who) == Profile("new")
        assert table.loads == 2
