"""Traps I3, S1, S2 and S3: sessions that a dump opens, that outlive their revocation, or that rise again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, connect, fixed
from ephemera.patterns.sessions import Sessions
from tests.patterns.accounts import BRIEF, CATALOGUE, FIXED, SLIDING, Session, SignIn, all_keys, somebody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ephemera.embedded import Valkey
    from ephemera.keyspace import Store


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for sessions."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


_READ = {b"string": ("GET",), b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1), b"none": ("GET",)}


async def _dump(store: Store) -> bytes:
    """Every key and every value that matters here, as somebody with a copy of the server has them."""
    found: list[object] = []
    async for key in all_keys(store):
        name, *rest = _READ.get(await store.call("TYPE", key), ("EXISTS",))
        found += (key, await store.call(name, key, *rest))
    return repr(found).encode()


async def test_i3_a_dump_of_the_server_opens_no_session(store: Store) -> None:
    """The seed's JSON holds tokens that anybody with a dump can use; nothing of ours lets anybody in."""
    secret = "eyJhbGciOiJSUzI1NiJ9.raw-refresh-token"
    naive = {"user_id": "u1", "session_id": "s1", "access_token": "a", "refresh_token": secret}
    await store.call("SETEX", f"naive-session:u1:{somebody()}", 60, json.dumps(naive))
    assert secret.encode() in await _dump(store)

    for sessions, session in ((store[SLIDING], Session(somebody())), (store[FIXED], SignIn(user_id=7))):
        token = await sessions.create(session)  # type: ignore[arg-type]
        dump = await _dump(store)
        assert token.encode() not in dump
        assert token[:20].encode() not in dump
        session_id = sessions.id_of(token) or ""
        assert session_id.encode() in dump
        assert await sessions.get(session_id) is None


def test_i3_a_session_that_would_hold_a_token_is_refused() -> None:
    """The seed's field list cannot even be declared, and the error says what to keep instead."""

    class Naive(msgspec.Struct):
        user_id: str
        access_token: str
        refresh_token: str

    with pytest.raises(InvalidDeclaration, match="access_token, refresh_token") as refused:
        Sessions(
            Catalogue("naive"), "session:{user_id}:{sid}", Naive, user="user_id", lifetime=fixed(hours=1)
        )
    assert "id and expiry" in refused.value.advice


async def test_s1_a_session_created_during_a_revocation_does_not_escape_it(store: Store) -> None:
    """SMEMBERS, then DEL, lets a session created in between escape this and all later revocations."""
    user = somebody()
    index = f"naive-index:{user}"
    await store.call("SADD", index, "first")
    await store.call("SET", f"naive:{user}:first", "in", "EX", 60)
    members = await store.call("SMEMBERS", index)
    await store.call("SET", f"naive:{user}:second", "in", "EX", 60)  # somebody signs in now
    await store.call("SADD", index, "second")
    for member in members:
        await store.call("DEL", f"naive:{user}:{member.decode()}")
    await store.call("DEL", index)
    assert await store.call("GET", f"naive:{user}:second") == b"in"
    assert not await store.call("SMEMBERS", index)

    sessions = store[SLIDING]
    for _ in range(100):
        begun = await sessions.begin(user)
        earlier = await sessions.create(Session(user))
        announced = sessions.create(Session(user), begun=begun)
        during, refused, _ = await asyncio.gather(
            sessions.create(Session(user)), announced, sessions.end_all(user), return_exceptions=True
        )
        assert await sessions.get(earlier) is None
        listed = [each.id for each in await sessions.of_user(user)]
        for token in (during, refused):
            alive = isinstance(token, str) and await sessions.get(token) is not None
            assert not alive or sessions.id_of(str(token)) in listed
        await sessions.end_all(user)
        assert await sessions.get(str(during)) is None
        assert await sessions.get(str(refused)) is None


async def test_s2_an_old_but_active_session_is_revoked(store: Store) -> None:
    """An index that does not slide ends before its sessions, which then escape; ours lives as they do."""
    user = somebody()
    index, naive = f"naive-index:{user}", f"naive:{user}:s"
    await store.call("SET", naive, "in", "PX", 150)
    await store.call("SADD", index, "s")
    await store.call("PEXPIRE", index, 150)
    sessions = store[BRIEF]
    token = await sessions.create(Session(user))
    while await store.call("EXISTS", index):  # the naive index ends, while both sessions are in use
        assert await store.call("PEXPIRE", naive, 5000)
        assert await sessions.get(token) is not None
    for _ in range(200):
        assert await sessions.get(token) is not None

    for member in await store.call("SMEMBERS", index):
        await store.call("DEL", f"naive:{user}:{member.decode()}")
    assert await store.call("GET", naive) == b"in"
    assert await sessions.end_all(user) == 1
    assert await sessions.get(token) is None


async def test_s3_a_late_update_does_not_raise_the_dead(store: Store) -> None:
    """HSET after a concurrent DEL leaves half a session that looks alive; ours writes nothing and says so."""
    user = somebody()
    naive = f"naive:{user}"
    await store.call("HSET", naive, "user_id", user, "role", "admin")
    await store.call("DEL", naive)
    await store.call("HSET", naive, "last_active", "now")
    assert await store.call("HGETALL", naive) == {b"last_active": b"now"}
    await store.call("DEL", naive)

    sessions = store[SLIDING]
    token = await sessions.create(Session(user))
    await asyncio.gather(
        sessions.update(token, role="admin"), sessions.end_all(user), sessions.update(token, plan="pro")
    )
    assert not await sessions.update(token, role="editor")
    assert await sessions.get(token) is None
    assert await store.call("EXISTS", f"session:{sessions.id_of(token)}", f"user_sessions:{user}") == 0
