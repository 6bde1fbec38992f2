"""Replies however they arrive: split at every byte, nested, between pushes; and malformed ones."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed, OutcomeUnknown, ServerError
from ephemera.wire import NodeClient, Script
from ephemera.wire._connection import Connection
from tests.wire.clients import node_client
from tests.wire.conditions import eventually
from tests.wire.forwarders import forwarding
from tests.wire.scripted_server import Peer, scripted_server

_NESTED = (
    b"*3\r\n%2\r\n+a\r\n*2\r\n:1\r\n#t\r\n$1\r\nb\r\n~2\r\n,1.5\r\n_\r\n"
    b"=7\r\ntxt:abc\r\n%1\r\n:1\r\n%1\r\n#f\r\n(36893488147419103232\r\n"
)
_MEANING = [{b"a": [1, True], b"b": [1.5, None]}, b"abc", {1: {False: b"36893488147419103232"}}]
_PUSH = b">2\r\n+invalidate\r\n*1\r\n$3\r\nkey\r\n"


def _arrived(pieces: list[bytes], position: int) -> bool:
    return len(pieces) > position


async def test_replies_split_at_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies and pushes that arrive one byte at a time are parsed as if they arrived whole."""
    stream = _PUSH + _NESTED + b"$5\r\nhe\r\nl\r\n" + _PUSH + b"-ERR no\r\n" + b"*0\r\n"
    pieces: list[bytes] = []
    receive = Connection.data_received

    def seen(self: Connection, data: bytes) -> None:
        pieces.append(data)
        receive(self, data)

    monkeypatch.setattr(Connection, "data_received", seen)

    async def dribble(peer: Peer) -> None:
        await peer.handshake()
        for _ in range(4):
            await peer.command()
        pieces.clear()
        for position in range(len(stream)):
            await peer.send(stream[position : position + 1])
            await eventually(partial(_arrived, pieces, position))
        await peer.wait_for_disconnect()

    async with scripted_server(dribble) as address, node_client(f"redis://{address}") as client:
        received: list[Any] = []
        client._invalidation_listeners.append(received.append)
        replies = await asyncio.gather(*(client.call("GET", "x") for _ in range(4)), return_exceptions=True)
        assert {len(piece) for piece in pieces} == {1}
        assert replies[:2] == [_MEANING, b"he\r\nl"]
        assert isinstance(replies[2], ServerError)
        assert replies[3] == []
        assert received == [[b"key"], [b"key"]]


async def test_a_real_server_one_byte_at_a_time(server: Valkey, key: str) -> None:
    """A real server's replies, forwarded byte by byte, reach their callers complete."""
    async with (
        forwarding(server, piece=1) as forwarder,
        node_client(f"redis://{forwarder.address}") as client,
    ):
        await client.call("HSET", key, "field", "välue", "other", b"\r\n\x00")
        calls = [client.call("HGETALL", key), client.call("ECHO", "x" * 500), client.call("HLEN", key)]
        assert await asyncio.gather(*calls) == [
            {b"field": "välue".encode(), b"other": b"\r\n\x00"},
            b"x" * 500,
            2,
        ]
        assert client.link.connection_count == 1


_SCRIPTS = [
    ("return redis.call('HGETALL', KEYS[1])", {b"f": b"v"}),
    ("return {redis.call('HGETALL', KEYS[1]), {double=1.25}}", [{b"f": b"v"}, 1.25]),
    ("return {{set={a=true}}, true}", [[b"a"], True]),
    ("return {map={a={map={b={1,{2,{3}}}}}}}", {b"a": {b"b": [1, [2, [3]]]}}),
    ("return {big_number='123456789012345678901234567890'}", b"123456789012345678901234567890"),
    ("return {verbatim_string={string='text', format='txt'}}", b"text"),
    ("return {double=tonumber('inf')}", math.inf),
    ("return {false, true, 1}", [False, True, 1]),
    ("return redis.call('GET', 'no such key')", None),
    ("return {}", []),
    ("return {err='MYERR inside'}", ServerError),
]  # fmt: skip


@pytest.mark.parametrize(("source", "meaning"), _SCRIPTS)
async def test_nested_replies_of_a_real_server(
    client: NodeClient, key: str, source: str, meaning: object
) -> None:
    """Maps, sets, doubles, booleans, nulls, big numbers and verbatim strings become Python values."""
    await client.call("HSET", key, "f", "v")
    evaluated = client.call("EVAL", f"redis.setresp(3) {source}", 1, key)
    if meaning is ServerError:
        with pytest.raises(ServerError, match="MYERR inside"):
            await evaluated
    else:
        assert await evaluated == meaning


@pytest.mark.parametrize(
    ("kind", "meaning"),
    [
        ("string", b"Hello World"),
        ("integer", 12345),
        ("double", 3.141),
        ("null", None),
        ("array", [0, 1, 2]),
        ("set", [0, 1, 2]),
        ("map", {0: False, 1: True, 2: False}),
        ("true", True),
        ("false", False),
        ("verbatim", b"This is a verbatim\nstring"),
        ("bignum", b"1234567999999999999999999999999999999"),
    ],
)
async def test_every_type_the_server_knows(client: NodeClient, kind: str, meaning: object) -> None:
    """Every RESP3 type that DEBUG PROTOCOL sends is parsed."""
    assert await client.link.send_args(("DEBUG", "PROTOCOL", kind)) == meaning


async def test_errors_inside_a_reply_are_values(client: NodeClient) -> None:
    """An error nested in an array is an element of it, not the failure of the call."""
    reply = await client.call("EVAL", "return {1, redis.error_reply('ODD one'), 3}", 0)
    assert [reply[0], reply[2]] == [1, 3]
    assert isinstance(reply[1], ServerError)
    assert reply[1].code == "ODD"


async def test_an_error_that_is_not_utf8(client: NodeClient) -> None:
    """An error message with arbitrary bytes fails its caller alone."""
    with pytest.raises(ServerError, match="unknown command"):
        await client.call(b"N\xff\xfe")
    assert await client.call("PING") == b"PONG"
    assert client.link.connection_count == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello\r\n",
        b"!5\r\nERR a\r\n",
        b"%1\r\n*0\r\n:1\r\n",
        b"*1\r\n" * 6000,
        b"$?\r\n",
        b":12a\r\n",
        b">0\r\n",
        b">1\r\n+invalidate\r\n",
        b">2\r\n+invalidate\r\n*1\r\n*0\r\n",
        b">2\r\n+message\r\n+news\r\n",
        b">3\r\n+subscribe\r\n*0\r\n:1\r\n",
    ],
    ids=[
        *("text", "bulk error", "odd key", "too deep", "streamed", "no number", "empty push"),
        *("keys that are not named", "odd keys", "no message", "odd channel"),
    ],
)
async def test_a_malformed_reply_ends_the_connection(nonsense: bytes) -> None:
    """A malformed reply is delivered to no caller: the connection ends and its callers fail."""

    async def babble(peer: Peer) -> None:
        await peer.handshake()
        await peer.command()
        await peer.send(nonsense)
        await peer.wait_for_disconnect()

    async with scripted_server(babble) as address, node_client(f"redis://{address}") as client:
        calls = [client.call("INCR", "x"), client.call("INCR", "y")]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, OutcomeUnknown)
            assert "does not speak the Redis protocol" in error.problem


async def test_an_extra_reply_ends_the_connection() -> None:
    """A reply without a command is not kept for the next caller."""

    async def oversupply(peer: Peer) -> None:
        await peer.handshake()
        await peer.command()
        await peer.send(b":1\r\n:2\r\n")
        await peer.wait_for_disconnect()

    async with scripted_server(oversupply) as address, node_client(f"redis://{address}") as client:
        assert await client.call("INCR", "x") == 1
        with pytest.raises(ConnectionFailed):
            await client.call("INCR", "x")


async def test_an_extra_reply_is_not_given_to_an_unsent_command() -> None:
    """An extra reply is not given to a command that is not sent yet, such as a script's second attempt."""

    async def oversupply(peer: Peer) -> None:
        await peer.handshake()
        await peer.command()
        await peer.send(b"-NOSCRIPT no such script\r\n$8\r\nsomebody\r\n")
        await peer.wait_for_disconnect()

    async with scripted_server(oversupply) as address, node_client(f"redis://{address}") as client:
        with pytest.raises(ConnectionFailed):
            await client.run(Script("mine", "return 'mine'"), [])
