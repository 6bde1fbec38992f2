"""Commands that a shared connection cannot run are refused, with what to use instead."""

from __future__ import annotations

from typing import Any

import pytest

from ephemera.errors import ServerError, UnsupportedCommand
from ephemera.wire import NodeClient


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("MULTI", "use a script instead"),
        ("EXEC", "use a script instead"),
        ("DISCARD", "use a script instead"),
        ("WATCH key", "use a script instead"),
        ("UNWATCH", "use a script instead"),
        ("AUTH password", "the URL sets"),
        ("HELLO 2", "the URL sets"),
        ("SELECT 1", "the URL sets"),
        ("RESET", "the URL sets"),
        ("QUIT", "the URL sets"),
        ("SUBSCRIBE news", "use store.subscribe"),
        ("PSUBSCRIBE n*", "use store.subscribe"),
        ("SSUBSCRIBE news", "use store.subscribe"),
        ("UNSUBSCRIBE", "use store.subscribe"),
        ("MONITOR", "all callers share"),
        ("PSYNC ? -1", "all callers share"),
        ("ASKING", "all callers share"),
        ("READONLY", "set in the URL"),
        ("WAIT 1 0", "the writes of one connection"),
        ("WAITAOF 1 0 0", "the writes of one connection"),
        ("CLIENT REPLY OFF", "all callers share"),
        ("CLIENT PAUSE 1000", "all callers share"),
        ("CLIENT SETNAME me", "all callers share"),
        ("CLIENT TRACKING ON", "use store.track"),
        ("DEBUG PROTOCOL attrib", "all callers share"),
    ],
)
async def test_stateful_commands_are_refused(client: NodeClient, command: str, advice: str) -> None:
    """A command that would change the shared connection is refused, however it is written, and not sent."""
    words: list[Any] = command.split()
    spellings = [words, [words[0].lower(), *words[1:]], [word.encode() for word in words]]
    spellings.append([memoryview(word.encode()) for word in words])
    for spelled in spellings:
        with pytest.raises(UnsupportedCommand, match=advice) as caught:
            client.call(*spelled)
        assert caught.value.command.split() == words[: len(caught.value.command.split())]
    assert client.link.connection_count == 1


@pytest.mark.parametrize("words", [(), (7, "key"), (None,)])
async def test_a_malformed_call_is_refused(client: NodeClient, words: Any) -> None:
    """A call without a name, or with one that is not text, is refused at once."""
    with pytest.raises(UnsupportedCommand):
        client.call(*words)


@pytest.mark.parametrize("wrong", [None, True, ["a"], {"a": 1}, object(), bytearray(b"x")])
async def test_an_argument_of_another_type_is_a_type_error(client: NodeClient, key: str, wrong: Any) -> None:
    """An argument that is neither text, bytes nor number fails its call, before anything is sent."""
    says = f"SET: argument 2 is {type(wrong).__name__}; send str, bytes, int or float"
    with pytest.raises(TypeError, match=says):
        client.call("SET", key, wrong)
    with pytest.raises(TypeError, match=f"BLPOP: argument 1 is {type(wrong).__name__};"):
        await client.call("BLPOP", wrong, 1)
    assert await client.call("EXISTS", key) == 0


async def test_names_may_have_any_case_and_type(client: NodeClient, key: str) -> None:
    """A command's name may be lower case or bytes, and its arguments any of the documented types."""
    assert await client.call("set", key, 1.5) == b"OK"
    assert await client.call(b"GET", key.encode()) == b"1.5"
    assert await client.call(memoryview(b"getdel"), memoryview(key.encode())) == b"1.5"
    assert await client.call("INCRBY", key, 2**40) == 2**40
    await client.call("DEL", key)


async def test_an_unknown_command_is_sent_to_the_server(client: NodeClient) -> None:
    """A command in none of our tables is sent as it is; the error names it and repeats no argument."""
    with pytest.raises(ServerError, match="unknown command 'NEWFANGLED'") as caught:
        await client.call("newfangled", "argument")
    assert caught.value.command == "NEWFANGLED"
    assert "argument" not in str(caught.value)


async def test_an_error_names_its_command_and_key(client: NodeClient, key: str) -> None:
    """A server's error has its code, command and key as fields and in its text."""
    await client.call("SET", key, "text")
    with pytest.raises(ServerError) as caught:
        await client.call("LPUSH", key, "x")
    error = caught.value
    assert (error.code, error.command, error.key) == ("WRONGTYPE", "LPUSH", key)
    assert str(error).startswith(f"LPUSH {key!r}: WRONGTYPE")


@pytest.mark.parametrize(
    "words", [("EVAL", "return 1", "many"), ("EVAL", "return 1"), ("XREAD", "STREAMS"), ("GET",)]
)
async def test_a_malformed_command_fails_alone(client: NodeClient, words: tuple[str, ...]) -> None:
    """A command with arguments missing or malformed fails its caller and affects no other."""
    other = client.call("ECHO", "other")
    with pytest.raises(ServerError):
        await client.call(*words)
    assert await other == b"other"
    assert client.link.connection_count == 1
