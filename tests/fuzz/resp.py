"""RESP: whatever a server sends, callers get their own reply or a clean error, soon, and the next call works.

A fake server talks to the real client over a socket. The n-th reply on a connection belongs to the n-th
command on it. So each connection records the commands and its replies, and afterwards every call is compared
with the reply to its command.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import hiredis
from hypothesis import strategies as st

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.wire import Client, Script, open_client
from tests.fuzz.replies import ERRORS, GARBAGE, PUSHES, VALUES, bulk
from tests.fuzz.resp_server_messages import ELSEWHERE
from tests.fuzz.trials import Area, Trial
from tests.wire.scripted_server import Peer, scripted_server

OPTIONS = "timeout=0.1&connect_timeout=0.5"
_SCRIPT = Script("fuzz", "return KEYS[1]")
_INCOMPLETE = object()

_steps = st.one_of(
    st.tuples(st.just("own"), st.just(b"")),
    st.tuples(st.just("own"), st.just(b"")),
    st.tuples(st.just("send"), VALUES),
    st.tuples(st.just("send"), ERRORS),
    st.tuples(st.just("send"), PUSHES),
    st.tuples(st.just("send"), GARBAGE),
    st.tuples(st.sampled_from(["close", "abort", "silence", "early"]), st.just(b"")),
)
_calls = st.tuples(st.sampled_from(["GET", "INCR", "SET", "script", "blpop"]), st.booleans())
_CASES = st.tuples(
    st.lists(_calls, min_size=1, max_size=8),
    st.lists(_steps, max_size=12),
    st.lists(st.integers(1, 2000), min_size=1, max_size=4),
)


class _Conversation:
    """One connection as the server saw it: what it was asked, and what it said after its welcome."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.asked: list[list[bytes]] = []
        self.said = b""
        self._more = asyncio.Event()

    async def listen(self) -> None:
        """Note what is asked, until the client goes."""
        while True:
            self.asked.append(await self._peer.command())
            self._more.set()

    async def asked_more_than(self, count: int) -> None:
        """Wait for a command."""
        while len(self.asked) <= count:
            self._more.clear()
            await self._more.wait()

    async def say(self, data: bytes, sizes: list[int]) -> None:
        """Send something in pieces."""
        self.said += data
        at, turn = 0, 0
        while at < len(data):
            size = max(sizes[turn % len(sizes)], len(data) // 50)
            await self._peer.send(data[at : at + size])
            at, turn = at + size, turn + 1
            await asyncio.sleep(0)

    async def serve(self, answered: int = 0) -> None:
        """Answer every command as a server would that knows no script: with its key."""
        while True:
            await self.asked_more_than(answered)
            await self.say(own_reply(self.asked[answered]), [100_000])
            answered += 1

    def answers(self) -> list[tuple[list[bytes], Any]]:
        """What each command was answered, as far as that can be understood."""
        reader = hiredis.Reader(replyError=ServerError, notEnoughData=_INCOMPLETE)
        reader.feed(self.said)
        found: list[tuple[list[bytes], Any]] = []
        with suppress(Exception):
            while (said := reader.gets()) is not _INCOMPLETE and len(found) < len(self.asked):
                if not isinstance(said, hiredis.PushNotification):
                    found.append((self.asked[len(found)], said))
        return found


def own_reply(command: list[bytes]) -> bytes:
    """What tells whose reply it is: the command's key."""
    if command[0] == b"EVALSHA":
        return b"-NOSCRIPT no such script\r\n"
    key = next((word for word in command if word.startswith(b"key:")), command[0])
    return b"*2\r\n" + bulk(key) * 2 if command[0] == b"BLPOP" else bulk(key)


class _Server:
    def __init__(self, steps: list[tuple[str, bytes]], sizes: list[int]) -> None:
        self._steps, self._sizes = steps, sizes
        self.conversations: list[_Conversation] = []

    async def converse(self, peer: Peer) -> None:
        """Break the first two connections as the case says, and serve the others well."""
        await peer.handshake()
        conversation = _Conversation(peer)
        self.conversations.append(conversation)
        listening_to_it = asyncio.create_task(conversation.listen())
        try:
            if len(self.conversations) <= 2:
                await self._misbehave(conversation)
            else:
                await conversation.serve()
        finally:
            listening_to_it.cancel()
            await asyncio.wait((listening_to_it,))
            with suppress(BaseException):
                listening_to_it.result()

    async def _misbehave(self, conversation: _Conversation) -> None:
        answered = 0
        early = ("early", b"") in self._steps
        for step, data in self._steps:
            if step == "close":
                return
            if step == "abort":
                raise asyncio.CancelledError
            if step == "silence":
                await asyncio.sleep(3600)
            if step == "own":
                await conversation.asked_more_than(answered)
                await conversation.say(own_reply(conversation.asked[answered]), self._sizes)
                answered += 1
            elif step == "send":
                if not early:
                    await conversation.asked_more_than(0)
                await conversation.say(data, self._sizes)
        await conversation.serve(answered)


async def _own_reply_or_error(
    case: tuple[list[tuple[str, bool]], list[tuple[str, bytes]], list[int]],
) -> None:
    calls, steps, sizes = case
    server = _Server(steps, sizes)
    async with scripted_server(server.converse) as address, _client(address) as client:
        if client is None:
            return  # it broke in its first moment, which is another trial
        tasks = [asyncio.ensure_future(_call(client, kind, f"key:{n}")) for n, (kind, _) in enumerate(calls)]
        await asyncio.sleep(0)
        for task, (_, cancelled) in zip(tasks, calls, strict=True):
            if cancelled:
                task.cancel()
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for number, outcome in enumerate(outcomes):
            _compare(f"key:{number}".encode(), outcome, calls[number], server.conversations)
        await _works_again(client)


@asynccontextmanager
async def _client(address: str) -> AsyncIterator[Client | None]:
    try:
        opened = open_client(f"redis://{address}?{OPTIONS}")
        client = await opened.__aenter__()
    except ConnectionFailed:
        yield None
        return
    try:
        yield client
    finally:
        async with asyncio.timeout(5):
            await opened.__aexit__(None, None, None)


async def _call(client: Client, kind: str, key: str) -> Any:
    awaited: Awaitable[Any]
    if kind == "script":
        awaited = client.run(_SCRIPT, [key])
    elif kind == "blpop":
        awaited = client.call("BLPOP", key, 1)
    elif kind == "SET":
        awaited = client.call("SET", key, "x")
    else:
        awaited = client.call(kind, key)
    return await awaited


def _compare(key: bytes, outcome: Any, call: tuple[str, bool], conversations: list[_Conversation]) -> None:
    if isinstance(outcome, asyncio.CancelledError):
        assert call[1], "it was not cancelled"
        return
    if isinstance(outcome, ConnectionFailed):
        return
    answers = [answer for each in conversations for asked, answer in each.answers() if key in asked]
    if isinstance(outcome, ServerError):
        messages = [answer.message for answer in answers if isinstance(answer, ServerError)]
        is_ours = any(text.startswith(outcome.message) for text in messages)
        assert is_ours, f"{outcome!r} has no reply: {answers!r}"
        return
    assert not isinstance(outcome, BaseException), repr(outcome)
    assert repr(outcome) in [repr(answer) for answer in answers], (
        f"{outcome!r} is not of {key!r}: {answers!r}"
    )


async def _works_again(client: Client) -> None:
    """The client reconnects by itself, and gives the next caller their reply."""
    async with asyncio.timeout(10):
        while True:
            with suppress(ConnectionFailed, ServerError):
                if await client.call("SET", "key:again", "x") == b"key:again":
                    return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _opened(_: Path) -> AsyncIterator[list[Trial]]:
    yield [
        Trial(
            "own reply or error",
            "Through replies that are broken, cut, huge, nested, surplus, early or missing, each call gets "
            "what its own command was answered or a clean error, and the client works again afterwards.",
            _CASES,
            _own_reply_or_error,
            batch=50,
        ),
        *ELSEWHERE,
    ]


RESP = Area("resp", _opened)
