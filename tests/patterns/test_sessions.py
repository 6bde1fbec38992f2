"""Sessions on one server and on a cluster, as hashes and as JSON."""

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
    SessionsRevoked,
    UndeclaredKeyspace,
)
from ephemera.keyspace import Catalogue, Store, connect, permanent, sliding
from ephemera.patterns.sessions import Sessions
from ephemera.wire import key_slot
from tests.patterns.session_fixtures import (
    BRIEF,
    CATALOGUE,
    FIXED,
    SLIDING,
    Session,
    SignIn,
    all_keys,
    new_user,
)
from tests.untyped import untyped


async def test_a_session_is_read_by_its_token(accounts: Store) -> None:
    """A session is read back, as a hash and as JSON, by its token and by its id."""
    user = new_user()
    session = Session(user_id=user, role="editor", tags=["a", "b"], last_active=datetime.now(UTC))
    sessions = accounts[SLIDING]
    token = await sessions.create(session)
    assert await sessions.get(token) == session
    assert await sessions.get_by_id(user, sessions.id_of(token) or "") == session

    sign_ins, sign_in = accounts[FIXED], SignIn(user_id=numeric_user(), scopes={"x": [1, 2]}, note='} \\"{,')
    other = await sign_ins.create(sign_in)
    assert await sign_ins.get(other) == sign_in
    assert await sign_ins.get_by_id(sign_in.user_id, sign_ins.id_of(other) or "") == sign_in


def numeric_user() -> int:
    """A user id that is a number."""
    return int(new_user()[:12], 16)


async def test_tokens_are_random_and_safe_in_urls_and_cookies(accounts: Store) -> None:
    """The tokens of two sessions of a user share only the user's part."""
    user = new_user()
    tokens = [await accounts[SLIDING].create(Session(user_id=user)) for _ in range(3)]
    assert len({token[:42] for token in tokens}) == 3
    assert all(re.fullmatch(r"[\w.-]+", token, re.ASCII) for token in tokens)


@pytest.mark.parametrize("user", ["u", "ann@example.org", "a:b{c}*", "Ω" * 40, "%", " ", "x" * 600])
async def test_any_user_id_works(accounts: Store, user: str) -> None:
    """User ids with special characters, other scripts or great length work like any other."""
    sessions = accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    assert await sessions.get(token) == Session(user_id=user)
    assert [listed.id for listed in await sessions.of_user(user)] == [sessions.id_of(token)]
    assert await sessions.end_all(user) == 1
    assert await sessions.get(token) is None


@pytest.mark.parametrize("user", ["", "x" * 2000, "\udc80"])
async def test_an_unusable_user_id_is_refused(accounts: Store, user: str) -> None:
    """No session is created for an empty id, or for one that no key or token can carry."""
    with pytest.raises((InvalidValue, InvalidField)):
        await accounts[SLIDING].create(Session(user_id=user))


async def test_all_keys_of_a_user_share_a_slot(accounts: Store) -> None:
    """Session keys fall into the slot of their user's index, without braces in their names."""
    user = new_user()
    tokens = [await accounts[SLIDING].create(Session(user_id=user)) for _ in range(3)]
    ids = [accounts[SLIDING].id_of(token) for token in tokens]
    keys = [f"user_sessions:{user}", *(f"session:{session_id}" for session_id in ids)]
    assert len({key_slot(key) for key in keys}) == 1
    for key in keys:
        assert await accounts.call("EXISTS", key) == 1
        if len(accounts.client("cache").nodes()) > 1:
            assert await accounts.call("CLUSTER", "KEYSLOT", key) == key_slot(key)


async def test_a_read_extends_session_and_index(accounts: Store) -> None:
    """A read extends both once a thousandth of the lifetime has passed, and not on every read."""
    user, sessions = new_user(), accounts[SLIDING]
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


async def test_an_unused_session_expires(accounts: Store) -> None:
    """Reads keep a session alive beyond its lifetime; without them it expires, and its index with it."""
    user, sessions = new_user(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    for _ in range(3):  # half a lifetime passes each time
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
    """Wait until a key has expired, and return the seconds it took."""
    began = datetime.now(UTC)
    while await store.call("EXISTS", key):
        assert datetime.now(UTC) < began + timedelta(seconds=60)
    return (datetime.now(UTC) - began).total_seconds()


async def test_a_fixed_session_does_not_slide(accounts: Store) -> None:
    """Reads and updates do not extend a fixed session."""
    user, sessions = numeric_user(), accounts[FIXED]
    token = await sessions.create(SignIn(user_id=user))
    key = f"signin:{user}:{sessions.id_of(token)}"
    await accounts.call("PEXPIRE", key, 100_000)
    assert await sessions.get(token) is not None
    assert await sessions.update(token, note="seen")
    assert 0 < await accounts.call("PTTL", key) <= 100_000


async def test_an_update_changes_only_what_it_names(accounts: Store) -> None:
    """Updates of different fields both survive, in a hash and inside a JSON text."""
    sessions, user = accounts[SLIDING], new_user()
    token = await sessions.create(Session(user_id=user, email="ann@example.org"))
    assert await sessions.update(token, role="admin")
    assert await sessions.update(token, tags=["x"], plan="pro")
    expected = Session(user_id=user, email="ann@example.org", role="admin", tags=["x"], plan="pro")
    assert await sessions.get(token) == expected

    sign_ins = accounts[FIXED]
    sign_in = SignIn(user_id=numeric_user(), scopes={'a"}': [1]}, note='he said: "{[,]}\\"')
    other = await sign_ins.create(sign_in)
    assert await sign_ins.update(other, ip_address="10.0.0.1\\")
    assert await sign_ins.update(other, access_id='"', scopes={"b": []})
    changed = msgspec.structs.replace(sign_in, ip_address="10.0.0.1\\", access_id='"', scopes={"b": []})
    assert await sign_ins.get(other) == changed


async def test_an_update_is_checked_before_it_is_sent(accounts: Store) -> None:
    """Unknown fields, values of another type, and another user are refused, and nothing changes."""
    sessions, session = accounts[SLIDING], Session(user_id=new_user())
    token = await sessions.create(session)
    wrong: list[dict[str, Any]] = [{}, {"colour": "red"}, {"role": 5}, {"tags": "x"}, {"user_id": "other"}]
    for changes in wrong:
        with pytest.raises(InvalidValue):
            await sessions.update(token, **changes)
    assert await sessions.get(token) == session


async def test_a_rotated_session_keeps_its_content_and_loses_its_token(accounts: Store) -> None:
    """After a rotation only the new token works, and the user still has one session."""
    for sessions, session in (
        (accounts[SLIDING], Session(user_id=new_user(), role="admin")),
        (accounts[FIXED], SignIn(user_id=numeric_user())),
    ):
        old = await sessions.create(untyped(session))
        new = await sessions.rotate(old)
        assert new is not None
        assert await sessions.get(old) is None
        assert await sessions.get(new) == session
        assert [listed.id for listed in await sessions.of_user(session.user_id)] == [sessions.id_of(new)]
        assert await sessions.rotate(old) is None


async def test_peek_does_not_extend_a_session(accounts: Store) -> None:
    """`peek` reads a session without extending it, as an open page needs it."""
    user, sessions = new_user(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    key = f"session:{sessions.id_of(token)}"
    await accounts.call("PEXPIRE", key, 60_000)
    assert await sessions.peek(token) == Session(user_id=user)
    assert 0 < await accounts.call("PTTL", key) <= 60_000
    assert await sessions.get(token) == Session(user_id=user)
    assert await accounts.call("PTTL", key) > 60_000
    await sessions.end_all(user)
    assert await sessions.peek(token) is None
    assert await sessions.peek("no token") is None


async def test_one_session_ends_and_the_others_stay(accounts: Store) -> None:
    """Ending by token or by id ends that session; ending it again returns False."""
    user, sessions = new_user(), accounts[SLIDING]
    first, second, third = [await sessions.create(Session(user_id=user)) for _ in range(3)]
    assert await sessions.end(first)
    assert not await sessions.end(first)
    assert await sessions.end_by_id(user, sessions.id_of(second) or "")
    assert [await sessions.get(token) for token in (first, second)] == [None, None]
    assert await sessions.get(third) is not None


async def test_an_id_of_another_user_ends_nothing(accounts: Store) -> None:
    """Only its own user can end a session by id, not even a user whose keys share its slot."""
    user, sessions = new_user(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    session_id, slot = sessions.id_of(token) or "", key_slot(f"user_sessions:{user}")
    neighbour = next(each for each in iter(new_user, user) if key_slot(f"user_sessions:{each}") == slot)
    for other in (new_user(), neighbour):
        assert not await sessions.end_by_id(other, session_id)
        assert await sessions.get_by_id(other, session_id) is None
        assert await sessions.get(token) is not None


async def test_all_sessions_of_a_user_end_at_once(accounts: Store) -> None:
    """`end_all` leaves no key of that user, and other users' sessions intact."""
    user, other, sessions = new_user(), new_user(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(4)]
    untouched = await sessions.create(Session(user_id=other))
    keys = [f"user_sessions:{user}", *(f"session:{sessions.id_of(token)}" for token in tokens)]
    assert await sessions.end_all(user) == 4
    assert [await sessions.get(token) for token in tokens] == [None] * 4
    assert {key async for key in all_keys(accounts)}.isdisjoint(key.encode() for key in keys)
    assert await sessions.get(untouched) is not None
    assert await sessions.end_all(user) == 0


async def test_all_sessions_but_one_end(accounts: Store) -> None:
    """`end_all(keep=...)` ends all sessions of the user but the one that is kept."""
    user, sessions = new_user(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(3)]
    stranger = await sessions.create(Session(user_id=new_user()))
    assert await sessions.end_all(user, keep=tokens[1]) == 2
    assert [await sessions.get(token) is not None for token in tokens] == [False, True, False]
    assert await sessions.end_all(user, keep=stranger) == 1
    assert await sessions.get(tokens[1]) is None


async def test_the_first_to_expire_is_ended_when_there_are_too_many(accounts: Store) -> None:
    """The sixth session of a user who may have five ends the one that would expire first."""
    user, sessions = new_user(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(5)]
    for number, token in enumerate(tokens):
        await accounts.call("ZADD", f"user_sessions:{user}", "XX", 1e13 + number, sessions.id_of(token) or "")
    tokens.append(await sessions.create(Session(user_id=user)))
    assert len(await sessions.of_user(user)) == 5
    assert [token for token in tokens if await sessions.get(token) is None] == tokens[:1]


async def test_expired_sessions_do_not_count(accounts: Store) -> None:
    """An expired entry makes room, and no valid session is ended for it."""
    user, sessions = new_user(), accounts[SLIDING]
    tokens = [await sessions.create(Session(user_id=user)) for _ in range(5)]
    await accounts.call("ZADD", f"user_sessions:{user}", "XX", 1, sessions.id_of(tokens[0]) or "")
    await sessions.create(Session(user_id=user))
    assert len(await sessions.of_user(user)) == 5
    assert all([await sessions.get(token) for token in tokens[1:]])


async def test_an_announced_sign_in_is_refused_after_a_revocation(accounts: Store) -> None:
    """A session whose sign-in began before a revocation cannot be created after it."""
    user, sessions = new_user(), accounts[SLIDING]
    sign_in, late_sign_in = await sessions.begin_sign_in(user), await sessions.begin_sign_in(user)
    assert await sessions.get(await sessions.create(Session(user_id=user), sign_in=sign_in)) is not None
    assert await sessions.end_all(user) == 1
    with pytest.raises(SessionsRevoked) as refused:
        await sessions.create(Session(user_id=user, role="admin"), sign_in=late_sign_in)
    assert refused.value.user == user
    assert await sessions.of_user(user) == []
    again = await sessions.create(Session(user_id=user), sign_in=await sessions.begin_sign_in(user))
    assert await sessions.get(again) is not None


async def test_a_sign_in_replaces_the_session_before_it(accounts: Store) -> None:
    """The anonymous session before a sign-in has ended when the new one exists."""
    sessions = accounts[SLIDING]
    anonymous = await sessions.create(Session(user_id=f"visitor-{new_user()}"))
    token = await sessions.create(Session(user_id=new_user()), replacing=anonymous)
    assert await sessions.get(anonymous) is None
    assert await sessions.get(token) is not None


@pytest.mark.parametrize("lost", ["session", "index"])
async def test_an_eviction_ends_the_session(accounts: Store, lost: str) -> None:
    """Without its index or its content a session has ended, and its remaining keys have a TTL."""
    user, sessions = new_user(), accounts[SLIDING]
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
    """A value that another program stored is a miss, counted as such, and an update leaves it alone."""
    user, sessions = numeric_user(), accounts[FIXED]
    token = await sessions.create(SignIn(user_id=user))
    key = f"signin:{user}:{sessions.id_of(token)}"
    whole = await accounts.call("GET", key)
    for foreign in (b"", b"{}", b'["1zzzzzz",{}]', whole[:-5], whole[: len(whole) // 2]):
        await accounts.call("SET", key, foreign, "KEEPTTL")
        before = accounts.stats[FIXED.keyspace].undecodable
        assert await sessions.get(token) is None
        assert accounts.stats[FIXED.keyspace].undecodable == before + 1
        await sessions.update(token, note="x")
        assert await sessions.get(token) is None


async def test_uses_are_counted(accounts: Store) -> None:
    """Hits, misses and writes are counted under the session's keyspace."""
    sessions = accounts[SLIDING]
    token = await sessions.create(Session(user_id=new_user()))
    await sessions.get(token)
    await sessions.get("nonsense")
    await sessions.end(token)
    stats = accounts.stats[SLIDING.keyspace]
    assert (stats.hits, stats.misses, stats.writes) == (1, 1, 2)


async def test_a_missing_ttl_is_restored(accounts: Store) -> None:
    """A session or an index that was made permanent has a TTL again after its next use."""
    user, sessions = new_user(), accounts[SLIDING]
    token = await sessions.create(Session(user_id=user))
    key, index = f"session:{sessions.id_of(token)}", f"user_sessions:{user}"
    await accounts.call("PERSIST", key)
    await accounts.call("PERSIST", index)
    await sessions.get(token)
    assert await accounts.call("PTTL", key) > 0
    await sessions.create(Session(user_id=user))
    assert await accounts.call("PTTL", index) > 0


def test_threads_use_sessions_through_a_sync_store(server: Valkey) -> None:
    """Synchronous code uses the same sessions from many threads."""
    with sync.connect(server.url, CATALOGUE) as store:

        def visit(user: str) -> bool:
            sessions = store[SLIDING]
            token = sessions.create(Session(user))
            seen = [sessions.get(token) for _ in range(20)]
            return seen == [Session(user)] * 20 and sessions.end_all(user) == 1

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(visit, [new_user() for _ in range(40)]))


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
        ("session:{session_id}", {"lifetime": permanent(reason="why not")}, "cannot have the lifetime"),
        ("session:{session_id}", {"max_per_user": 0}, "allows no sessions"),
        ("session:{session_id}:x", {}, "does not end with"),
        ("session:{tenant}:{session_id}", {}, "other fields"),
        ("session:{session_id}", {"record": Secretive}, "access_token"),
    ],
)
def test_invalid_declarations_are_refused(pattern: str, changes: dict[str, Any], said: str) -> None:
    """A declaration that could not keep its guarantees fails at import, and says why."""
    options: dict[str, Any] = {"record": Session, "user": "user_id", "lifetime": sliding(hours=1), **changes}
    with pytest.raises(InvalidDeclaration, match=said):
        Sessions(Catalogue("x"), pattern, **options)
