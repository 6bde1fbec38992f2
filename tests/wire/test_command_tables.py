"""The wire's command tables agree with what the servers report about each command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import UnsupportedCommand
from ephemera.wire import NodeClient
from ephemera.wire import _commands as commands
from tests.wire.clients import node_client
from tests.wire.debian_redis import BINARY, DebianRedis

# Reads by the server's word, but for the master alone: TOUCH is about eviction there.
_NOT_FOR_REPLICAS = {"TOUCH", "CLUSTERSCAN"}
# For the server's own use, or for its developers.
_INTERNAL = {"CLUSTERSCAN", "RESTORE-ASKING", "PFDEBUG"}


@pytest.fixture(scope="module", params=["valkey", "redis 7"])
def known_to(request: pytest.FixtureRequest, server: Valkey) -> Iterator[str]:
    """The URL of each supported kind of server."""
    if request.param == "valkey":
        yield server.url
        return
    if not BINARY.exists():
        pytest.skip(f"{BINARY} is not installed here")
    with DebianRedis() as running:
        yield running.url


async def _described(url: str) -> dict[str, dict[str, Any]]:
    """Flags and first key of every command and subcommand, by name."""
    described: dict[str, dict[str, Any]] = {}
    async with node_client(url) as client:
        pending = list(await client.call("COMMAND"))
        while pending:
            name, _, flags, first, *rest = pending.pop()
            words = {flag.decode() for flag in flags}
            described[name.decode().upper()] = {"flags": words, "first": first, "specs": rest[4]}
            pending += rest[5]
    return described


async def test_reads_are_reads(known_to: str) -> None:
    """Commands that are retried after a lost connection change nothing, according to the server."""
    described = await _described(known_to)
    for name in commands.READS & described.keys():
        parts = [said for part, said in described.items() if part.startswith(f"{name}|")]
        for said in parts or [described[name]]:
            assert "write" not in said["flags"], name


async def test_no_read_is_missing(known_to: str) -> None:
    """Every keyed command that the server flags as a read is in our table, so that replicas may serve it."""
    described = await _described(known_to)
    reads = {name for name, said in described.items() if "readonly" in said["flags"] and said["first"] > 0}
    forgotten = {name for name in reads if "|" not in name} - commands.READS
    assert forgotten <= _NOT_FOR_REPLICAS


async def test_plain_commands_have_their_key_first(known_to: str) -> None:
    """The commands of the hot path have their first key at position 1 and need no connection of their own."""
    described = await _described(known_to)
    for name in commands.PLAIN & described.keys():
        said = described[name]
        assert said["first"] == 1, name
        assert not said["flags"] & {"blocking", "no_multi"}, name
        assert "pubsub" not in said["flags"] or name == "SPUBLISH"


async def test_every_command_with_keys_is_known(known_to: str) -> None:
    """Every command that has keys is in the tables, so that a cluster knows where to send it."""
    described = await _described(known_to)
    keyed = {name.partition("|")[0] for name, said in described.items() if said["specs"]}
    placed = commands.PLAIN | commands._KEY_AT.keys() | commands._NUMKEYS_AT.keys() | {"XREAD", "XREADGROUP"}
    assert keyed - placed - commands.REFUSED.keys() <= _INTERNAL


async def test_every_blocking_command_is_known(known_to: str) -> None:
    """A command that may block gets a connection of its own, or is refused."""
    described = await _described(known_to)
    blocking = {name for name, said in described.items() if "blocking" in said["flags"]}
    samples: dict[str, tuple[str, ...]] = {
        "BLMPOP": ("BLMPOP", "1", "1", "k", "LEFT"),
        "BZMPOP": ("BZMPOP", "1", "1", "k", "MIN"),
        "BLMOVE": ("BLMOVE", "a", "b", "LEFT", "LEFT", "1"),
        "BRPOPLPUSH": ("BRPOPLPUSH", "a", "b", "1"),
        "XREAD": ("XREAD", "BLOCK", "1000", "STREAMS", "s", "$"),
        "XREADGROUP": ("XREADGROUP", "GROUP", "g", "c", "BLOCK", "1000", "STREAMS", "s", ">"),
    }
    for name in blocking - commands.REFUSED.keys():
        assert commands.blocking_seconds(name, samples.get(name, (name, "k", "1"))) == 1, name
        assert name not in commands.PLAIN


async def test_every_subscription_command_is_refused(known_to: str) -> None:
    """Commands that subscribe, unsubscribe, or change the connection's state are refused."""
    described = await _described(known_to)
    stateful = {n for n, said in described.items() if "pubsub" in said["flags"] and "SUBSCRIBE" in n}
    stateful |= {n for n in described if n in {"MULTI", "EXEC", "WATCH", "MONITOR", "SYNC", "PSYNC", "AUTH"}}
    assert len(stateful) == 13
    for name in stateful:
        with pytest.raises(UnsupportedCommand):
            commands.refuse_stateful(name, (name,))


_SAMPLES = [
    "GET a",
    "MGET a b c",
    "DEL a b",
    "MSET a 1 b 2",
    "RENAME a b",
    "COPY a b DB 1",
    "LMOVE a b LEFT RIGHT",
    "SMOVE a b m",
    "BLMOVE a b LEFT RIGHT 1",
    "BLPOP a b 1",
    "BZPOPMIN a b 1",
    "BLMPOP 1 2 a b LEFT",
    "LMPOP 2 a b LEFT",
    "SINTERCARD 2 a b LIMIT 3",
    "ZUNIONSTORE d 2 a b WEIGHTS 1 2",
    "ZUNION 2 a b WITHSCORES",
    "SUNIONSTORE d a b",
    "BITOP AND d a b",
    "PFMERGE d a b",
    "GEOSEARCHSTORE d s FROMMEMBER m BYRADIUS 1 m ASC",
    "ZRANGESTORE d s 0 1",
    "LCS a b LEN",
    "OBJECT ENCODING a",
    "MEMORY USAGE a",
    "XINFO STREAM a",
    "XGROUP CREATE a g $",
    "XREAD COUNT 2 STREAMS a b 0 0",
    "XREADGROUP GROUP g c STREAMS a b > >",
    "EVAL script 2 a b x",
    "EVALSHA sha 1 a",
    "FCALL f 2 a b",
]


@pytest.mark.parametrize("sample", _SAMPLES)
async def test_keys_are_where_the_server_finds_them(client: NodeClient, sample: str) -> None:
    """The keys that route a command, and that errors name, are those of COMMAND GETKEYS."""
    words = tuple(sample.split())
    keys = [key.decode() for key in await client.call("COMMAND", "GETKEYS", *words)]
    assert commands.first_key(words[0], words) == keys[0]
    if len(keys) > 1:
        assert commands.all_keys(words[0], words) == keys


@pytest.mark.parametrize(
    "words", [("EVAL", "x"), ("EVAL", "x", "many", "k"), ("ZUNION", "-1", "k"), ("XREAD", "STREAMS")]
)
def test_a_malformed_command_has_no_key(words: tuple[str, ...]) -> None:
    """A command whose number of keys is malformed is left for the server to refuse."""
    assert commands.first_key(words[0], words) is None
    commands.all_keys(words[0], words)
