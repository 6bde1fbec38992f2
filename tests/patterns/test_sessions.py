"""What sessions promise to their callers, on one server and on a cluster, as hashes and as JSON."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ephemera import sync
from ephemera.embedded import Valkey
from ephemera.errors import (
    InvalidDeclaration,
    InvalidField,
    InvalidValue,
    RevokedMeanwhile,
    UndeclaredKeyspace,
)
from ephemera.keyspace import Catalogue, Store, connect, permanent, sliding
from ephemera.patterns.sessions import Sessions
from ephemera.wire import key_slot
from tests.patterns.accounts import BRIEF, CATALOGUE, FIXED, SLIDING, Session, SignIn, all_keys, somebody


async def test_a_session_comes_back_by_its_token(accounts: Store) -> None:
    """What was stored is read back, as a hash and as JSON, by the token and by the id."""
    user = somebody()
    session = Session(user_id=user, role="editor", tags=["a", "b"], last_active=datetime.now(UTC))
    sessions = accounts[SLIDING]
    token = await sessions.create(session)
    assert await sessions.get(token) == session
    assert await sessions.get_by_id(user, sessions.id_of(token) or "") == session

    sign_ins, sign_in = accounts[FIXED], SignIn(user_id=somebody_else(), scopes={"x": [1, 2]}, note='} \\"{,')
    other = await sign_ins.create(sign_in)
    assert await sign_ins.get(other) == sign_in
    assert await sign_ins.get_by_id(sign_in.user_id, sign_ins.id_of(other) or "") == sign_in


def somebody_else() -> int:
    """A user with a number for an id."""
    return int(somebody()[:12], 16)


async def test_tokens_are_random_and_texts_for_urls_and_cookies(accounts: Store) -> None:
    """Two sessions of a user have nothing in common in their tokens but the user."""
    user = somebody()
    tokens = [await accounts[SLIDING].create(Session(user_id=user)) for _ in range(3)]
    assert len({token[:42] for token in tokens}) == 3
    assert all(re.fullmatch(r"[\w.-]+", token, re.ASCII) for token in tokens)


@pytest.mark.parametrize("user", ["u", "ann@example.org", "a:b{c}*", "Ω" * 40, "%", " ", "x" * 600])
async def test_any_user_id_works(accounts: Store, user: str) -> None:
    """Marks that mean something to keys, other scripts and long ids are placed like any other."""
    sessions = accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    assert await sessions.get(token) == Session(user_id=user)
    assert [listed.id for listed in await sessions.of_user(user)] == [sessions.id_of(token)]
    assert await sessions.end_all(user) == 1
    assert await sessions.get(token) is None


@pytest.mark.parametrize("user", ["", "x" * 2000, "\udc80"])
async def test_a_user_id_that_cannot_be_placed_is_refused(accounts: Store, user: str) -> None:
    """No session is made for nobody, nor for an id that no key or token can carry."""
    with pytest.raises((InvalidValue, InvalidField)):
        await accounts[SLIDING].create(Session(user_id=user))


async def test_all_keys_of_a_user_share_a_slot(accounts: Store) -> None:
    """Session keys are placed where their user's index is, without braces in their names."""
    user = somebody()
    tokens = [await accounts[SLIDING].create(Session(user_id=user)) for _ in range(3)]
    ids = [accounts[SLIDING].id_of(token) for token in tokens]
    keys = [f"user_sessions:{user}", *(f"session:{session_id}" for session_id in ids)]
    assert len({key_slot(key) for key in keys}) == 1
    for key in keys:
        assert await accounts.call("EXISTS", key) == 1
        if len(accounts.client("cache").nodes()) > 1:
            assert await accounts.call("CLUSTER", "KEYSLOT", key) == key_slot(key)


async def test_the_read_slides_session_and_index(accounts: Store) -> None:
    """A read starts both lives anew once a thousandth of them is gone, and not on every read."""
    user, sessions = somebody(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    session_key, index = f"session:{sessions.id_of(token)}", f"user_sessions:{user}"
    day = timedelta(hours=24) // timedelta(milliseconds=1)
    for key in (session_key, index):
        await accounts.call("PEXPIRE", key, day // 2)
    await sessions.get(token)
    for key in (session_key, index):
        assert day - 10_000 < await accounts.call("PTTL", key) <= day
    await accounts.call("PEXPIRE", session_key, day - 30_000)
    await sessions.get(token)
    assert await accounts.call("PTTL", session_key) <= day - 30_000


async def test_a_session_ends_when_nobody_uses_it(accounts: Store) -> None:
    """Uses keep a session alive for longer than its life; without them it ends, and its index with it."""
    user, sessions = somebody(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    for _ in range(3):  # half a life goes by each time
        for key in (f"session:{sessions.id_of(token)}", f"user_sessions:{user}"):
            assert await accounts.call("PEXPIRE", key, sessions.lifetime // 2)
        assert await sessions.get(token) is not None
    (listed,) = await sessions.of_user(user)
    assert listed.ends - datetime.now(UTC) > timedelta(hours=23)

    brief = accounts[BRIEF]
    used = datetime.now(UTC)
    token = await brief.create(Session(user_id=user))
    await until_gone(accounts, f"brief:{brief.id_of(token)}")
    assert datetime.now(UTC) - used > timedelta(seconds=1.9)
    assert await brief.get(token) is None
    assert await brief.of_user(user) == []
    await until_gone(accounts, f"briefs:{user}")


async def until_gone(store: Store, key: str) -> float:
    """Seconds until a key has expired."""
    began = datetime.now(UTC)
    while await store.call("EXISTS", key):
        assert datetime.now(UTC) < began + timedelta(seconds=60)
    return (datetime.now(UTC) - began).total_seconds()


async def test_a_fixed_session_does_not_slide(accounts: Store) -> None:
    """Reads and updates leave the end of a fixed session where it was."""
    user, sessions = somebody_else(), accounts[FIXED]
    token = await sessions.create(SignIn(user_id=user))
    key = f"signin:{user}:{sessions.id_of(token)}"
    await accounts.call("PEXPIRE", key, 100_000)
    assert await sessions.get(token) is not None
    assert await sessions.update(token, note="seen")
    assert 0 < await accounts.call("PTTL", key) <= 100_000


async def test_an_update_changes_only_what_it_names(accounts: Store) -> None:
    """Updates of different fields both survive, in a hash and inside a JSON text."""
    sessions, user = accounts[SLIDING], somebody()
    token = await sessions.create(Session(user_id=user, email="ann@example.org"))
    assert await sessions.update(token, role="admin")
    assert await sessions.update(token, tags=["x"], plan="pro")
    expected = Session(user_id=user, email="ann@example.org", role="admin", tags=["x"], plan="pro")
    assert await sessions.get(token) == expected

    sign_ins = accounts[FIXED]
    sign_in = SignIn(user_id=somebody_else(), scopes={'a"}': [1]}, note='he said: "{[,]}\\"')
    other = await sign_ins.create(sign_in)
    assert await sign_ins.update(other, ip_address="10.0.0.1\\")
    assert await sign_ins.update(other, access_id='"', scopes={"b": []})
    changed = msgspec.structs.replace(sign_in, ip_address="10.0.0.1\\", access_id='"', scopes={"b": []})
    assert await sign_ins.get(other) == changed


async def test_an_update_is_checked_before_it_is_sent(accounts: Store) -> None:
    """Unknown fields, values of another type, and another user are refused, and nothing changes."""
    sessions, session = accounts[SLIDING], Session(user_id=somebody())
    token = await sessions.create(session)
    wrong: list[dict[str, Any]] = [{}, {"colour": "red"}, {"role": 5}, {"tags": "x"}, {"user_id": "other"}]
    for changes in wrong:
        with pytest.raises(InvalidValue):
            await sessions.update(token, **changes)
    assert await sessions.get(token) == session


async def test_a_rotated_session_keeps_its_content_and_loses_its_token(accounts: Store) -> None:
    """After a rotation only the new token works, and the user still has one session."""
    for sessions, session in (
        (accounts[SLIDING], Session(user_id=somebody(), role="admin")),
        (accounts[FIXED], SignIn(user_id=somebody_else())),
    ):
        old = await sessions.create(session)  # type: ignore[arg-type]
        new = await sessions.rotate(old)
        assert new is not None
        assert await sessions.get(old) is None
        assert await sessions.get(new) == session
        assert [listed.id for listed in await sessions.of_user(session.user_id)] == [sessions.id_of(new)]
        assert await sessions.rotate(old) is None


async def test_looking_does_not_let_a_session_slide(accounts: Store) -> None:
    """A page that is left open asks whether its session lives, and is no use of it."""
    user, sessions = somebody(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    key = f"session:{sessions.id_of(token)}"
    await accounts.call("PEXPIRE", key, 60_000)
    assert await sessions.look(token) == Session(user_id=user)
    assert 0 < await accounts.call("PTTL", key) <= 60_000
    assert await sessions.get(token) == Session(user_id=user)
    assert await accounts.call("PTTL", key) > 60_000
    await sessions.end_all(user)
    assert await sessions.look(token) is None
    assert await sessions.look("no token") is None


async def test_one_session_ends_and_the_others_stay(accounts: Store) -> None:
    """Ending by token or by id ends that one; ending it again says that it was gone."""
    user, sessions = somebody(), accounts[SLIDING]
    first, second, third = [await sessions.create(Session(user_id=user)) for _ in range(3)]
    assert await sessions.end(first)
    assert not await sessions.end(first)
    assert await sessions.end_by_id(user, sessions.id_of(second) or "")
    assert [await sessions.get(token) for token in (first, second)] == [None, None]
    assert await sessions.get(third) is not None


async def test_an_id_of_somebody_else_ends_nothing(accounts: Store) -> None:
    """Only the user whose session it is can end it by id, not even one whose keys share its slot."""
    user, sessions = somebody(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    session_id, slot = sessions.id_of(token) or "", key_slot(f"user_sessions:{user}")
    neighbour = next(each for each in iter(somebody, user) if key_slot(f"user_sessions:{each}") == slot)
    for other in (somebody(), neighbour):
        assert not await sessions.end_by_id(other, session_id)
        assert await sessions.get_by_id(other, session_id) is None
        assert await sessions.get(token) is not None


async def test_all_sessions_of_a_user_end_at_once(accounts: Store) -> None:
    """Ending all leaves no key of that user, and does not touch anybody else."""
    user, other, sessions = somebody(), somebody(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(4)]
    untouched = await sessions.create(Session(user_id=other))
    keys = [f"user_sessions:{user}", *(f"session:{sessions.id_of(token)}" for token in tokens)]
    assert await sessions.end_all(user) == 4
    assert [await sessions.get(token) for token in tokens] == [None] * 4
    assert {key async for key in all_keys(accounts)}.isdisjoint(key.encode() for key in keys)
    assert await sessions.get(untouched) is not None
    assert await sessions.end_all(user) == 0


async def test_all_sessions_but_one_end(accounts: Store) -> None:
    """Whoever changes a password stays signed in where they did it, and nowhere else."""
    user, sessions = somebody(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(3)]
    stranger = await sessions.create(Session(user_id=somebody()))
    assert await sessions.end_all(user, keep=tokens[1]) == 2
    assert [await sessions.get(token) is not None for token in tokens] == [False, True, False]
    assert await sessions.end_all(user, keep=stranger) == 1
    assert await sessions.get(tokens[1]) is None


async def test_the_oldest_goes_when_there_are_too_many(accounts: Store) -> None:
    """The sixth session of a user who may have five ends that which was used longest ago."""
    user, sessions = somebody(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(5)]
    for place, token in enumerate(tokens):
        await accounts.call("ZADD", f"user_sessions:{user}", "XX", 1e13 + place, sessions.id_of(token) or "")
    tokens.append(await sessions.create(Session(user_id=user)))
    assert len(await sessions.of_user(user)) == 5
    assert [token for token in tokens if await sessions.get(token) is None] == tokens[:1]


async def test_sessions_that_have_ended_do_not_count(accounts: Store) -> None:
    """An entry of the past makes room by itself, and no living session goes for it."""
    user, sessions = somebody(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(5)]
    await accounts.call("ZADD", f"user_sessions:{user}", "XX", 1, sessions.id_of(tokens[0]) or "")
    await sessions.create(Session(user_id=user))
    assert len(await sessions.of_user(user)) == 5
    assert all([await sessions.get(token) for token in tokens[1:]])


async def test_an_announced_sign_in_is_refused_after_a_revocation(accounts: Store) -> None:
    """A session prepared from what was true before a revocation cannot be created after it."""
    user, sessions = somebody(), accounts[SLIDING]
    begun, also_begun = await sessions.begin(user), await sessions.begin(user)
    assert await sessions.get(await sessions.create(Session(user_id=user), begun=begun)) is not None
    assert await sessions.end_all(user) == 1
    with pytest.raises(RevokedMeanwhile) as refused:
        await sessions.create(Session(user_id=user, role="admin"), begun=also_begun)
    assert refused.value.user == user
    assert await sessions.of_user(user) == []
    again = await sessions.create(Session(user_id=user), begun=await sessions.begin(user))
    assert await sessions.get(again) is not None


async def test_a_sign_in_replaces_the_session_before_it(accounts: Store) -> None:
    """The anonymous session of whoever signs in is gone when the new one is there."""
    sessions = accounts[SLIDING]
    anonymous = await sessions.create(Session(user_id=f"visitor-{somebody()}"))
    token = await sessions.create(Session(user_id=somebody()), replacing=anonymous)
    assert await sessions.get(anonymous) is None
    assert await sessions.get(token) is not None


@pytest.mark.parametrize("lost", ["session", "index"])
async def test_what_is_evicted_ends_the_session(accounts: Store, lost: str) -> None:
    """Without its index or its content a session is over, and what is left of it has an end."""
    user, sessions = somebody(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    key, index = f"session:{sessions.id_of(token)}", f"user_sessions:{user}"
    await accounts.call("UNLINK", key if lost == "session" else index)
    assert not await sessions.update(token, role="admin")
    assert await sessions.rotate(token) is None
    assert await sessions.get(token) is None
    assert not await sessions.end(token)
    assert await accounts.call("PTTL", key) != -1
    assert await accounts.call("ZSCORE", index, sessions.id_of(token) or "") is None


async def test_an_undecodable_session_is_none(accounts: Store) -> None:
    """What another program put in its place is a miss, counted as such, and an update leaves it alone."""
    user, sessions = somebody_else(), accounts[FIXED]
    token = await sessions.create(SignIn(user_id=user))
    key = f"signin:{user}:{sessions.id_of(token)}"
    whole = await accounts.call("GET", key)
    for foreign in (b"", b"{}", b'["1zzzzzz",{}]', whole[:-5], whole[: len(whole) // 2]):
        await accounts.call("SET", key, foreign, "KEEPTTL")
        before = accounts.stats[FIXED.space].undecodable
        assert await sessions.get(token) is None
        assert accounts.stats[FIXED.space].undecodable == before + 1
        await sessions.update(token, note="x")
        assert await sessions.get(token) is None


async def test_uses_are_counted(accounts: Store) -> None:
    """Hits, misses and writes show under the session's space."""
    sessions = accounts[SLIDING]
    token = await sessions.create(Session(user_id=somebody()))
    await sessions.get(token)
    await sessions.get("nonsense")
    await sessions.end(token)
    stats = accounts.stats[SLIDING.space]
    assert (stats.hits, stats.misses, stats.writes) == (1, 1, 2)


async def test_a_missing_lifetime_heals(accounts: Store) -> None:
    """A session or an index that somebody made permanent has an end again after its next use."""
    user, sessions = somebody(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    key, index = f"session:{sessions.id_of(token)}", f"user_sessions:{user}"
    await accounts.call("PERSIST", key)
    await accounts.call("PERSIST", index)
    await sessions.get(token)
    assert await accounts.call("PTTL", key) > 0
    await sessions.create(Session(user_id=user))
    assert await accounts.call("PTTL", index) > 0


def test_threads_use_sessions_through_a_blocking_store(server: Valkey) -> None:
    """Code that does not await has the same sessions, from as many threads as it likes."""
    with sync.connect(server.url, CATALOGUE) as store:

        def visit(user: str) -> bool:
            sessions = store.aio[SLIDING]
            token = store.wait(sessions.create(Session(user)))
            seen = [store.wait(sessions.get(token)) for _ in range(20)]
            return seen == [Session(user)] * 20 and store.wait(sessions.end_all(user)) == 1

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(visit, [somebody() for _ in range(40)]))


async def test_a_store_without_the_catalogue_is_refused(server: Valkey) -> None:
    """Sessions can be used only on a store that was opened with their catalogue."""
    async with connect(server.url) as store:
        with pytest.raises(UndeclaredKeyspace):
            store[SLIDING]


class Secretive(msgspec.Struct):
    user_id: str
    access_token: str


@pytest.mark.parametrize(
    ("pattern", "changes", "said"),
    [
        ("session:{session_id}", {"user": "owner"}, "no field 'owner'"),
        ("session:{session_id}", {"lifetime": permanent(reason="why not")}, "cannot live"),
        ("session:{session_id}", {"most_per_user": 0}, "lets nobody in"),
        ("session:{session_id}:x", {}, "does not end with"),
        ("session:{tenant}:{session_id}", {}, "other fields"),
        ("session:{session_id}", {"record": Secretive}, "access_token"),
    ],
)
def test_what_cannot_work_is_refused_when_declared(pattern: str, changes: dict[str, Any], said: str) -> None:
    """A declaration that could not hold its promises fails at import, and says why."""
    options: dict[str, Any] = {"record": Session, "user": "user_id", "lifetime": sliding(hours=1), **changes}
    with pytest.raises(InvalidDeclaration, match=said):
        Sessions(Catalogue("x"), pattern, **options)
