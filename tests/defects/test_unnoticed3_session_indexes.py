"""Unnoticed 3: the index of a user's sessions outlives them, has an end, and counts sessions only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ephemera import Store, connect
from ephemera.embedded import Valkey
from ephemera.patterns.sessions._sessions import LIST
from tests.patterns.session_fixtures import BRIEF, CATALOGUE, SLIDING, Session, new_user

DAY = 24 * 3600 * 1000


@pytest.fixture
async def accounts(server: Valkey) -> AsyncIterator[Store]:
    """A store of sessions."""
    async with connect(server.url, CATALOGUE) as store:
        yield store


async def ends(store: Store, key: str) -> int:
    """When a key ends, in milliseconds since 1970."""
    return int(await store.call("PEXPIRETIME", key))


async def test_unnoticed3_an_index_outlives_its_longest_session(accounts: Store) -> None:
    """Neither a sign-in in progress nor a session that ends earlier shortens an index."""
    user, sessions = new_user(), accounts[SLIDING]
    index = f"user_sessions:{user}"
    token = await sessions.create(Session(user_id=user))
    longest = await ends(accounts, f"session:{sessions.id_of(token)}")
    assert await ends(accounts, index) >= longest - 1
    await sessions.begin_sign_in(user)
    assert await ends(accounts, index) >= longest - 1
    await accounts.call("PEXPIRE", index, DAY * 2)
    await sessions.create(Session(user_id=user))
    rotated = await sessions.rotate(token)
    assert await sessions.get(rotated or "") is not None
    assert await ends(accounts, index) >= longest + DAY - 1000


async def test_unnoticed3_a_sign_in_alone_has_an_end(accounts: Store) -> None:
    """An index that holds only a mark ends with the time that a sign-in may take, and marks prolong it."""
    user, sessions = new_user(), accounts[SLIDING]
    mark = await sessions.begin_sign_in(user)
    index = f"user_sessions:{user}"
    assert 590_000 < await accounts.call("PTTL", index) <= 600_000
    await accounts.call("PEXPIRE", index, 1000)
    assert await sessions.begin_sign_in(user) == mark
    assert 590_000 < await accounts.call("PTTL", index) <= 600_000


async def test_unnoticed3_a_kept_session_ends_with_its_index(accounts: Store) -> None:
    """After `end_all(keep=)` the index ends when the kept session does, and is extended with it."""
    user, sessions = new_user(), accounts[SLIDING]
    kept, _ = [await sessions.create(Session(user_id=user)) for _ in range(2)]
    index, session = f"user_sessions:{user}", f"session:{sessions.id_of(kept)}"
    assert await sessions.end_all(user, keep=kept) == 1
    assert abs(await ends(accounts, index) - await ends(accounts, session)) <= 2
    brief = accounts[BRIEF]
    short = await brief.create(Session(user_id=user))
    await brief.create(Session(user_id=user))
    await brief.end_all(user, keep=short)
    assert 0 < await accounts.call("PTTL", f"briefs:{user}") <= 2000


async def test_unnoticed3_the_mark_of_a_sign_in_is_no_session(accounts: Store) -> None:
    """It is not listed, not counted when sessions end, and takes no session's place."""
    user, sessions = new_user(), accounts[SLIDING]
    await sessions.begin_sign_in(user)
    assert await sessions.of_user(user) == []
    # The script alone: `of_user` would also leave out an id without a session.
    assert await accounts.client("cache").run(LIST, (f"user_sessions:{user}",)) == []
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(5)]
    await sessions.begin_sign_in(user)
    assert len(await sessions.of_user(user)) == 5
    assert all([await sessions.get(token) for token in tokens])
    assert await sessions.end_all(user) == 5
    await sessions.begin_sign_in(user)
    assert await sessions.end_all(user) == 0
