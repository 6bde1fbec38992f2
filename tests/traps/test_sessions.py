"""Traps I3, S1, S2 and S3: sessions that a dump opens, that survive their revocation, or that are revived."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, SessionsRevoked
from ephemera.keyspace import Catalogue, Store, connect, fixed
from ephemera.patterns.sessions import Sessions
from tests.patterns.session_fixtures import CATALOGUE, FIXED, SLIDING, Session, SignIn, all_keys, new_user
from tests.traps.interrupted import Interrupted
from tests.untyped import untyped


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store for sessions."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


_READ = {b"string": ("GET",), b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1), b"none": ("GET",)}


async def _dump(store: Store) -> bytes:
    """Every key and value, as in a copy of the server's data."""
    found: list[object] = []
    async for key in all_keys(store):
        name, *rest = _READ.get(await store.call("TYPE", key), ("EXISTS",))
        found += (key, await store.call(name, key, *rest))
    return repr(found).encode()


async def test_i3_a_dump_of_the_server_opens_no_session(store: Store) -> None:
    """A naive JSON session holds tokens that are usable from a dump; nothing in ours is."""
    secret = "eyJhbGciOiJSUzI1NiJ9.raw-refresh-token"
    naive = {"user_id": "u1", "session_id": "s1", "access_token": "a", "refresh_token": secret}
    await store.call("SETEX", f"naive-session:u1:{new_user()}", 60, json.dumps(naive))
    assert secret.encode() in await _dump(store)

    for sessions, session in ((store[SLIDING], Session(new_user())), (store[FIXED], SignIn(user_id=7))):
        token = await sessions.create(untyped(session))
        dump = await _dump(store)
        assert token.encode() not in dump
        assert token[:20].encode() not in dump
        session_id = sessions.id_of(token) or ""
        assert session_id.encode() in dump
        assert await sessions.get(session_id) is None


def test_i3_a_session_that_would_hold_a_token_is_refused() -> None:
    """A Struct with token fields cannot be declared, and the error says what to store instead."""

    class Naive(msgspec.Struct):
        user_id: str
        access_token: str
        refresh_token: str

    with pytest.raises(InvalidDeclaration, match="access_token, refresh_token") as refused:
        Sessions(
            Catalogue("naive"), "session:{user_id}:{sid}", Naive, user="user_id", lifetime=fixed(hours=1)
        )
    assert "id and expiry" in refused.value.advice


async def test_s1_a_session_created_during_a_revocation_does_not_escape_it(
    server: Valkey, store: Store
) -> None:
    """SMEMBERS, then DEL, misses a session created in between forever; ours is refused, or listed.

    Refused where its sign-in was announced before the revocation; otherwise the next revocation ends it.
    """
    user = new_user()
    index = f"naive-index:{user}"
    await store.call("SADD", index, "first")
    await store.call("SET", f"naive:{user}:first", "in", "EX", 60)
    members = await store.call("SMEMBERS", index)
    await store.call("SET", f"naive:{user}:second", "in", "EX", 60)  # a sign-in in between
    await store.call("SADD", index, "second")
    for member in members:
        await store.call("DEL", f"naive:{user}:{member.decode()}")
    await store.call("DEL", index)
    assert await store.call("GET", f"naive:{user}:second") == b"in"
    assert not await store.call("SMEMBERS", index)

    async with connect(server.url, CATALOGUE) as elsewhere:
        sessions, other = store[SLIDING], elsewhere[SLIDING]
        sign_in, late = await other.begin_sign_in(user), await other.begin_sign_in(user)
        first, second = [await other.create(Session(user)) for _ in range(2)]
        created: list[str] = []

        async def in_the_meantime() -> None:
            assert await other.rotate(first) is None
            with pytest.raises(SessionsRevoked):
                await other.create(Session(user), sign_in=sign_in)
            created.append(await other.create(Session(user)))

        client: Any = Interrupted(store.client("cache"), in_the_meantime)
        assert await Store({"cache": client}, CATALOGUE)[SLIDING].end_all(user) == 2
        with pytest.raises(SessionsRevoked):
            await other.create(Session(user), sign_in=late)
        for token in (first, second):
            assert [await each.get(token) for each in (sessions, other)] == [None, None]
        (during,) = created
        assert [each.id for each in await sessions.of_user(user)] == [sessions.id_of(during)]
        assert await sessions.end_all(user) == 1
        assert await other.get(during) is None


async def test_s2_an_old_but_active_session_is_revoked(store: Store) -> None:
    """An index that does not slide expires before its sessions, which then escape; ours slides with them."""
    user = new_user()
    index, naive = f"naive-index:{user}", f"naive:{user}:s"
    sessions = store[SLIDING]
    token = await sessions.create(Session(user))
    await store.call("SET", naive, "in", "PX", sessions.lifetime)
    await store.call("SADD", index, "s")
    await store.call("PEXPIRE", index, sessions.lifetime)
    ours = (f"session:{sessions.id_of(token)}", f"user_sessions:{user}")
    for _ in range(3):  # half a lifetime of all of them passes, and then the sessions are used
        for key in (index, naive, *ours):
            left = await store.call("PTTL", key)
            await store.call("PEXPIRE", key, left - sessions.lifetime // 2)
        assert await store.call("PEXPIRE", naive, sessions.lifetime)
        assert await sessions.get(token) is not None
    assert not await store.call("EXISTS", index)
    assert [each.id for each in await sessions.of_user(user)] == [sessions.id_of(token)]

    for member in await store.call("SMEMBERS", index):
        await store.call("DEL", f"naive:{user}:{member.decode()}")
    assert await store.call("GET", naive) == b"in"
    assert await sessions.end_all(user) == 1
    assert await sessions.get(token) is None


async def test_s3_a_late_update_does_not_revive_a_session(server: Valkey, store: Store) -> None:
    """HSET after a concurrent DEL leaves half a session that looks valid; ours writes nothing."""
    user = new_user()
    naive = f"naive:{user}"
    await store.call("HSET", naive, "user_id", user, "role", "admin")
    await store.call("DEL", naive)
    await store.call("HSET", naive, "last_active", "now")
    assert await store.call("HGETALL", naive) == {b"last_active": b"now"}
    await store.call("DEL", naive)

    sessions, overtaken = store[SLIDING], 0
    async with connect(server.url, CATALOGUE) as elsewhere:  # another connection, so that any order may occur
        for turn in range(100):
            token = await sessions.create(Session(user))
            calls: list[Any] = [elsewhere[SLIDING].update(token, role="admin") for _ in range(4)]
            calls.insert(turn % 5, sessions.end_all(user))
            done = await asyncio.gather(*calls)
            assert done.pop(turn % 5) == 1
            overtaken += not all(done)
            assert not await sessions.update(token, role="editor")
            assert await sessions.get(token) is None
            index = f"user_sessions:{user}"
            assert await store.call("EXISTS", f"session:{sessions.id_of(token)}") == 0
            assert await store.call("EXISTS", index) == 0
    assert overtaken
