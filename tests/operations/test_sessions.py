"""Signed-in users, sessions and revocations, without their contents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import pytest

from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Store, connect
from ephemera.operations.inspect import RevocationFinder, UserFinder, list_sessions, tokens_revoked_until
from tests.patterns.session_fixtures import CATALOGUE, FIXED, SLIDING, Session, SignIn, new_user
from tests.patterns.test_revocation import CATALOGUE as REVOCABLE
from tests.patterns.test_revocation import REVOKED


@pytest.fixture(params=["server", "cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A server, and a cluster."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE, REVOCABLE) as opened:
        yield opened


async def test_a_users_sessions_are_listed_without_contents(store: Store) -> None:
    """Ids, last use and expiry are listed; no field of a session, no token."""
    user, live = new_user(), store[SLIDING]
    token = await live.create(Session(user_id=user, email="secret@example.org"))
    (seen,) = await list_sessions(store, SLIDING, user)
    now = datetime.now(UTC)
    assert seen.id == live.id_of(token)
    assert seen.slides
    assert abs(seen.since - now) < timedelta(minutes=2)
    assert abs(seen.ends - now - timedelta(hours=24)) < timedelta(minutes=2)
    text = msgspec.json.encode(seen).decode()
    assert "secret" not in text
    assert token not in text


async def test_a_session_can_be_ended_by_its_listed_id(store: Store) -> None:
    """Of two sessions one is ended by its id, and the other stays."""
    user, live = new_user(), store[SLIDING]
    tokens = [await live.create(Session(user_id=user)) for _ in range(2)]
    seen = await list_sessions(store, SLIDING, user)
    assert await live.end_by_id(user, seen[0].id)
    left = [token for token in tokens if await live.get(token) is not None]
    assert [live.id_of(token) for token in left] == [seen[1].id]


async def test_fixed_sessions_show_their_start(store: Store) -> None:
    """JSON sessions with a fixed lifetime show when they started."""
    user = int(uuid4().int % 10**12)
    await store[FIXED].create(SignIn(user_id=user))
    (seen,) = await list_sessions(store, FIXED, str(user))
    assert not seen.slides
    assert abs(seen.since - datetime.now(UTC)) < timedelta(minutes=2)


async def test_signed_in_users_are_found(store: Store) -> None:
    """Users with sessions are listed with the number of sessions; users without are not."""
    here, gone = new_user(), new_user()
    for user in (here, here, gone):
        await store[SLIDING].create(Session(user_id=user))
    await store[SLIDING].end_all(gone)
    users = UserFinder(store, SLIDING, limit=10_000)
    found = {each.user: each.sessions for each in await users.search()}
    while not users.finder.complete:
        found = {each.user: each.sessions for each in await users.search()}
    assert found[here] == 2
    assert gone not in found


async def test_revocations_are_listed(store: Store) -> None:
    """A revoked token, a family and a user's revocation are listed with their expiry."""
    user, jti, family = new_user(), uuid4().hex, uuid4().hex
    revoked = store[REVOKED]
    assert await tokens_revoked_until(store, REVOKED, user) is None
    await revoked.revoke_token("access", jti, until=datetime.now(UTC) + timedelta(minutes=5))
    await revoked.revoke_family(family)
    instant = await revoked.revoke_user(user)
    until = await tokens_revoked_until(store, REVOKED, user)
    assert until is not None
    assert abs(until.timestamp() - instant) < 0.001
    marks = {
        (mark.kind, mark.id): mark.expires_in
        for mark in await RevocationFinder(store, REVOKED, 10_000).search()
    }
    assert 300 < marks["access token", jti] <= 360, "the token's time and the leeway"
    assert marks["family", family] > 0
    assert marks["user", user] > 0


async def test_an_unavailable_server_raises() -> None:
    """With Redis down the calls raise instead of showing no sessions."""
    async with connect("redis://127.0.0.1:1", CATALOGUE, required=False) as unavailable:
        with pytest.raises(ConnectionFailed):
            await list_sessions(unavailable, SLIDING, "u1")
        with pytest.raises(ConnectionFailed):
            await UserFinder(unavailable, SLIDING).search()
