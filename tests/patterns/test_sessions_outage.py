"""Sessions when Redis is down, hung, flushed or evicting."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

import pytest

from ephemera.embedded import valkey
from ephemera.errors import ConnectionFailed, Unavailable
from ephemera.keyspace import connect
from ephemera.patterns.sessions import BoundSessions
from tests.patterns.session_fixtures import CATALOGUE, SLIDING, Session, new_user
from tests.wire.conditions import answered

OPERATIONS: dict[str, Callable[[BoundSessions[Session], str], Awaitable[object]]] = {
    "get": lambda sessions, token: sessions.get(token),
    "create": lambda sessions, _: sessions.create(Session("ann")),
    "update": lambda sessions, token: sessions.update(token, role="admin"),
    "rotate": lambda sessions, token: sessions.rotate(token),
    "end": lambda sessions, token: sessions.end(token),
    "end_all": lambda sessions, _: sessions.end_all("ann"),
    "of_user": lambda sessions, _: sessions.of_user("ann"),
    "begin_sign_in": lambda sessions, _: sessions.begin_sign_in("ann"),
}


async def test_every_operation_fails_at_once_when_redis_is_down_and_recovers() -> None:
    """Users are never signed in or out by guesswork; an empty server that returns has no sessions."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            sessions = store[SLIDING]
            token = await sessions.create(Session("ann"))
            server.kill()
            with pytest.raises(ConnectionFailed):
                await sessions.get(token)
            took = []
            for operation in OPERATIONS.values():
                began = time.perf_counter()
                with pytest.raises(Unavailable):
                    await operation(sessions, token)
                took.append(time.perf_counter() - began)
            assert statistics.median(took) < 0.1  # no operation waits for the timeout
            assert store.stats[SLIDING.keyspace].errors >= len(OPERATIONS)
            server.restart()
            await answered(lambda: sessions.get(token))
            assert await sessions.get(token) is None
            assert await sessions.get(await sessions.create(Session("ann"))) == Session("ann")


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_on_a_hung_server_times_out_and_sessions_survive(name: str) -> None:
    """Callers of a hung server wait for the timeout; sessions from before remain valid after."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            sessions = store[SLIDING]
            bystander = await sessions.create(Session("bob"))
            token = await sessions.create(Session("ann"))
            server.pause()
            began = time.perf_counter()
            with pytest.raises(ConnectionFailed):
                await OPERATIONS[name](sessions, token)
            assert time.perf_counter() - began < 5
            server.resume()
            await answered(lambda: sessions.get(bystander))
            assert await sessions.get(bystander) == Session("bob")


async def test_an_evicting_server_keeps_no_revoked_session() -> None:
    """Whichever keys are evicted, even indexes, no session survives its revocation."""
    config = {"maxmemory": "4mb", "maxmemory-policy": "allkeys-lru", "maxmemory-samples": "10"}
    with valkey(config=config) as server:
        async with connect(server.url, CATALOGUE) as store:
            sessions, users = store[SLIDING], [new_user() for _ in range(40)]
            tokens = {user: [await sessions.create(Session(user)) for _ in range(5)] for user in users}
            for number in range(3000):
                await store.call("SET", f"ballast:{number}", "x" * 1000)
                if number % 10 == 0:  # some sessions stay in use
                    await sessions.get(tokens[users[number % 7]][number % 3])
            evicted = int(str(server.ask("INFO", "stats")).split("evicted_keys:")[1].split()[0])
            assert evicted > 200
            for user in users:
                await sessions.end_all(user)
            everything = [token for each in tokens.values() for token in each]
            assert [token for token in everything if await sessions.get(token) is not None] == []
