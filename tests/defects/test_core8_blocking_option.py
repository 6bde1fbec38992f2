"""CORE8: XREADGROUP with a group or consumer named "streams" or "block" was not recognised as blocking."""

from __future__ import annotations

import asyncio

import pytest

from ephemera.wire import NodeClient, first_key
from ephemera.wire._commands import all_keys, blocking_seconds
from tests.wire.conftest import client

__all__ = ["client"]


@pytest.mark.parametrize(
    ("group", "consumer"), [("streams", "c"), ("g", "STREAMS"), ("block", "0"), ("g", "block")]
)
async def test_core8_a_blocking_read_does_not_hold_up_others(
    client: NodeClient, key: str, group: str, consumer: str
) -> None:
    """The read waits on a connection of its own while other commands are answered."""
    await client.call("XGROUP", "CREATE", key, group, "$", "MKSTREAM")
    words = ("XREADGROUP", "GROUP", group, consumer, "BLOCK", 60_000, "STREAMS", key, ">")
    reading = asyncio.ensure_future(client.call(*words))
    assert await client.call("ECHO", "served") == b"served"
    assert not reading.done()
    await client.call("XADD", key, "*", "field", "value")
    assert key.encode() in (await reading)
    await client.call("UNLINK", key)


@pytest.mark.parametrize(
    ("command", "seconds", "keys"),
    [
        ("XREADGROUP GROUP streams c BLOCK 1000 STREAMS a b > >", 1, ["a", "b"]),
        ("XREADGROUP GROUP g streams STREAMS a >", None, ["a"]),
        ("XREADGROUP GROUP block block COUNT 1 NOACK BLOCK 0 STREAMS a >", 0, ["a"]),
        ("XREADGROUP COUNT 1 BLOCK 500 GROUP g block STREAMS block >", 0.5, ["block"]),
        ("XREADGROUP GROUP g c CLAIM 5 BLOCK 500 STREAMS a >", 0.5, ["a"]),
        ("XREAD COUNT 1 STREAMS streams block 0 0", None, ["streams", "block"]),
        ("XREAD BLOCK 20 STREAMS block 0", 0.02, ["block"]),
    ],
)
def test_core8_options_are_read_with_their_values(
    command: str, seconds: float | None, keys: list[str]
) -> None:
    """The time limit and the keys are found wherever the options are."""
    args = tuple(command.split())
    assert blocking_seconds(args[0], args) == seconds
    assert first_key(args[0], args) == keys[0]
    assert all_keys(args[0], args) == keys
