"""RESP besides calls: greetings, channels and invalidations, slot maps, and answers of Sentinels."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from ephemera.errors import EphemeraError
from ephemera.wire import open_client
from tests.fuzz.replies import ERRORS, GARBAGE, PUSHES, VALUES, bulk
from tests.fuzz.trials import Trial
from tests.wire.scripted_server import Peer, scripted_server

_OPTIONS = "timeout=0.1&connect_timeout=0.3"
_anything = st.one_of(VALUES, ERRORS, GARBAGE, PUSHES)
_facts = st.dictionaries(
    st.sampled_from(["server", "version", "mode", "role", "modules", "proto"]),
    st.one_of(
        st.sampled_from(
            [b"redis", b"valkey", b"7.4.0", b"6", b"", b"x.y", b"standalone", b"cluster", b"master"]
        ).map(bulk),
        VALUES,
    ),
)


def _hello(facts: dict[str, bytes]) -> bytes:
    return b"%%%d\r\n" % len(facts) + b"".join(bulk(name.encode()) + value for name, value in facts.items())


async def _first_words(case: list[bytes]) -> None:
    """Answer the n-th of the first words with the n-th of these, and +OK from there on."""

    async def converse(peer: Peer) -> None:
        for answer in case:
            await peer.command()
            await peer.send(answer)
        while True:
            await peer.command()
            await peer.send(b"+OK\r\n")

    async with scripted_server(converse) as address:
        for scheme in ("redis", "redis+cluster"):
            with suppress(EphemeraError):
                async with asyncio.timeout(5), open_client(f"{scheme}://{address}/?{_OPTIONS}") as client:
                    await client.call("GET", "x")


async def _listen(case: list[bytes]) -> None:
    """Subscribe and track, while the server pushes these."""

    async def converse(peer: Peer) -> None:
        await peer.handshake()
        first = await peer.command()
        if first[0] == b"SUBSCRIBE":
            await peer.send(b">3\r\n" + bulk(b"subscribe") + bulk(first[1]) + b":1\r\n")
        else:
            await peer.send(b"+OK\r\n")
        for push in case:
            await peer.send(push)
        if first[0] == b"SUBSCRIBE":
            await peer.send(b">3\r\n" + bulk(b"message") + bulk(b"news") + bulk(b"last"))
        await peer.wait_for_disconnect()

    async with scripted_server(converse) as address:
        with suppress(EphemeraError):
            async with asyncio.timeout(5), open_client(f"redis://{address}?{_OPTIONS}") as client:
                changed: list[Any] = []
                await client.track(changed.append)
                async with client.subscribe("news") as messages:
                    async for message in messages:
                        assert message.channel == b"news"
                        if message.lost or message.data == b"last":
                            break
                for keys in changed:
                    assert keys is None or all(isinstance(key, bytes) for key in keys), keys


_place = st.one_of(
    st.tuples(
        st.sampled_from([b"127.0.0.1", b"", b"?", b"\xff", b"a b", b"::1"]).map(bulk), st.integers(-1, 70000)
    ).map(lambda place: b"*2\r\n%s:%d\r\n" % place),
    st.just(b"*3\r\n$-1\r\n:0\r\n$1\r\nx\r\n"),
    VALUES,
)
_range = st.tuples(st.integers(-2, 20000), st.integers(-2, 20000), st.lists(_place, max_size=3)).map(
    lambda shard: b"*%d\r\n:%d\r\n:%d\r\n%s" % (2 + len(shard[2]), shard[0], shard[1], b"".join(shard[2]))
)
_maps = st.one_of(
    st.lists(st.one_of(_range, VALUES), max_size=3).map(
        lambda all_: b"*%d\r\n%s" % (len(all_), b"".join(all_))
    ),
    _anything,
)


async def _mapped(case: tuple[list[bytes], list[bytes]]) -> None:
    """A node of a cluster that tells these maps of slots in turn, and answers all else with these."""
    maps, answers = case

    async def converse(peer: Peer) -> None:
        await peer.handshake(mode="cluster")
        turn = 0
        while True:
            words = await peer.command()
            said = maps if words[0] == b"CLUSTER" else answers
            answer = said[turn % len(said)]
            await peer.send(answer.replace(b"@HERE", peer_address.encode()))
            turn += 1

    async with scripted_server(converse) as peer_address:
        with suppress(EphemeraError):
            async with (
                asyncio.timeout(8),
                open_client(f"redis+cluster://{peer_address}?{_OPTIONS}") as client,
            ):
                for key in ("a", "b"):
                    with suppress(EphemeraError):
                        await client.call("GET", key)


_WHOLE = b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:@PORT\r\n"


async def _ask_sentinel(case: list[bytes]) -> None:
    """A Sentinel that answers these when it is asked for the master, and pushes them as well."""

    async def converse(peer: Peer) -> None:
        await peer.handshake(mode="sentinel")
        turn = 0
        while True:
            await peer.command()
            await peer.send(case[turn % len(case)])
            turn += 1

    async with scripted_server(converse) as address:
        with suppress(EphemeraError):
            async with (
                asyncio.timeout(8),
                open_client(f"redis+sentinel://{address}/mymaster?{_OPTIONS}") as client,
            ):
                await client.call("GET", "x")


_masters = st.tuples(
    st.sampled_from([b"127.0.0.1", b"", b"\xff\xfe", b"no such host", b"::1"]),
    st.one_of(st.sampled_from([b"1", b"0", b"-1", b"99999", b"x", b"", b"1e3", b"\xff"])),
).map(lambda place: b"*2\r\n" + bulk(place[0]) + bulk(place[1]))
_redirections = st.sampled_from(
    [
        b"-MOVED 1 @HERE\r\n",
        b"-ASK 1 @HERE\r\n",
        b"-TRYAGAIN x\r\n",
        b"-MOVED 1 :0\r\n",
        b"-CLUSTERDOWN x\r\n",
    ]
)

ELSEWHERE = [
    Trial(
        "first words",
        "A server that greets oddly, or not at all, is refused with a clean error, in time.",
        st.lists(st.one_of(_anything, _facts.map(_hello)), max_size=4),
        _first_words,
        batch=30,
    ),
    Trial(
        "pushes",
        "Whatever is pushed, a listener gets messages of its channel alone and is notified of gaps, and "
        "invalidations name keys or all of them.",
        st.lists(st.one_of(PUSHES, PUSHES, _anything), max_size=5),
        _listen,
        batch=30,
    ),
    Trial(
        "maps of slots",
        "A cluster whose map is nonsense, or that sends commands in circles, is a clean error.",
        st.tuples(
            st.lists(_maps, min_size=1, max_size=3),
            st.lists(st.one_of(_redirections, _anything), min_size=1, max_size=3),
        ),
        _mapped,
        batch=30,
    ),
    Trial(
        "word of Sentinels",
        "A Sentinel that talks nonsense is a clean error.",
        st.lists(st.one_of(_masters, _anything), min_size=1, max_size=3),
        _ask_sentinel,
        batch=30,
    ),
]
