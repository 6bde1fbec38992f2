"""An observed client reports every command and script, and leaves the client it wraps as it was."""

from __future__ import annotations

import asyncio

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import ServerError
from ephemera.wire import (
    Arg,
    NodeClient,
    ObservedClient,
    PreparedScript,
    Script,
    open_client,
    pack_command,
)
from ephemera.wire._observed_client import Finish

ADD = Script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


class _Recorder:
    """Keeps what was started, and how each ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, Arg | None, str]] = []

    def start(self, name: str, key: Arg | None) -> Finish:
        """Record the outcome by the type of its error."""
        return lambda error: self.ended.append((name, key, type(error).__name__ if error else ""))


async def test_every_way_to_send_is_observed_once(server: Valkey, key: str) -> None:
    """`call`, `run`, `send` and `send_to` are reported with their name, key and outcome."""
    recorder = _Recorder()
    async with open_client(server.url) as inner:
        client = ObservedClient(inner, recorder)
        reply = asyncio.get_running_loop().create_future()
        await client.call("SET", key, 1)
        await client.run(ADD, [key], [2])
        await client.send(PreparedScript(ADD, [key], [3]))
        client.send_to(reply, pack_command(("GET", key)))
        assert await reply == b"6"
        with pytest.raises(ServerError):
            await client.call("LPUSH", key, "x")
        await client.call("DEL", key)
    assert recorder.ended == [
        ("SET", key, ""),
        ("add", key, ""),
        ("add", key, ""),
        ("GET", key.encode(), ""),
        ("LPUSH", key, "ServerError"),
        ("DEL", key, ""),
    ]


async def test_a_cancelled_call_ends_as_cancelled(server: Valkey, key: str) -> None:
    """The observation of a cancelled call ends, too."""
    recorder = _Recorder()
    async with open_client(server.url) as inner:
        waiting = asyncio.ensure_future(ObservedClient(inner, recorder).call("GET", key))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert recorder.ended == [("GET", key, "CancelledError")]


async def test_the_wrapped_client_is_unchanged(client: NodeClient, key: str) -> None:
    """Commands sent through the client itself are not observed."""
    recorder = _Recorder()
    observed = ObservedClient(client, recorder)
    await client.call("GET", key)
    await observed.nodes()[0].call("GET", key)
    assert recorder.ended == []
    assert (observed.up, observed.connection_count, observed.is_cluster) == (
        client.up,
        client.connection_count,
        False,
    )
