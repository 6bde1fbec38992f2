"""Revocation by token, user or family, in one round trip, and the policies while Redis is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ephemera.embedded import Valkey, valkey
from ephemera.errors import ConnectionFailed, InvalidDeclaration, InvalidLifetime, InvalidValue
from ephemera.keyspace import Catalogue, Store, connect
from ephemera.patterns.revocation import Revocation, TokenKind, TokenStatus
from ephemera.patterns.revocation._revocation import REVOKE_USER
from tests.patterns.session_fixtures import new_user
from tests.untyped import untyped
from tests.wire.conditions import eventually

CATALOGUE = Catalogue("tokens")
REVOKED = Revocation(
    CATALOGUE,
    tokens={
        "access": TokenKind("blacklist:access:{jti}", lifetime=timedelta(minutes=15), when_down="local"),
        "refresh": TokenKind("blacklist:refresh:{jti}", lifetime=timedelta(days=7)),
    },
)
_VALID = TokenStatus(revoked=False)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for revocations."""
    async with connect(url, CATALOGUE) as opened:
        yield opened


def soon() -> float:
    """When a token that is issued now expires."""
    return time.time() + 600


async def test_a_revoked_token_is_void(store: Store) -> None:
    """Only the token of that kind and id is void, and its mark expires a leeway after the token."""
    revoked, jti = store[REVOKED], new_user()
    assert await revoked.check("access", jti=jti) == _VALID
    assert await revoked.revoke_token("access", jti, until=soon())
    assert await revoked.check("access", jti=jti) == TokenStatus(revoked=True, by="token")
    assert await revoked.check("refresh", jti=jti) == _VALID
    assert 650 < await store.call("TTL", f"blacklist:access:{jti}") <= 660


async def test_an_expired_token_needs_no_revocation(store: Store) -> None:
    """Revoking an expired token writes nothing and is not an error."""
    revoked, jti = store[REVOKED], new_user()
    assert not await revoked.revoke_token("access", jti, until=time.time() - 61)
    assert not await revoked.revoke_token("access", jti, until=datetime(2020, 1, 1, tzinfo=UTC))
    assert await store.call("EXISTS", f"blacklist:access:{jti}") == 0


async def test_an_expiry_beyond_the_lifetime_is_an_error(store: Store) -> None:
    """Milliseconds instead of seconds do not make a mark for thousands of years."""
    with pytest.raises(InvalidLifetime):
        await store[REVOKED].revoke_token("access", new_user(), until=time.time() * 1000)


@pytest.mark.parametrize("behind", [90, 86_400, -86_400])
async def test_a_wrong_local_clock_does_not_prevent_a_revocation(
    store: Store, monkeypatch: pytest.MonkeyPatch, behind: float
) -> None:
    """A token issued by Redis's clock can be revoked, however wrong the local clock is."""
    revoked, jti, right = store[REVOKED], new_user(), time.time
    issued = await revoked.now("ann")
    monkeypatch.setattr(time, "time", lambda: right() - behind)
    assert await revoked.revoke_token("access", jti, until=issued + 900)
    assert 950 < await store.call("TTL", f"blacklist:access:{jti}") <= 960
    with pytest.raises(InvalidLifetime, match="at most 16 min"):
        await revoked.revoke_token("access", new_user(), until=issued * 1000)


async def test_tokens_of_clocks_that_are_ahead_can_be_revoked(server: Valkey) -> None:
    """A clock that is ahead by the skew issues tokens that expire later, and so do their marks."""
    catalogue = Catalogue("ahead")
    kinds = {"access": TokenKind("ahead:{jti}", lifetime=timedelta(minutes=15))}
    declared = Revocation(
        catalogue,
        tokens=kinds,
        users="aheadu:{u}",
        families="aheadf:{f}",
        channel="aheadn",
        skew=timedelta(minutes=5),
    )
    async with connect(server.url, catalogue) as store:
        ahead = await store[declared].now("ann") + 290
        assert await store[declared].revoke_token("access", jti := new_user(), until=ahead + 900)
        assert await store.call("TTL", f"ahead:{jti}") > 1180


async def test_tokens_issued_to_a_user_before_are_void(store: Store) -> None:
    """A user's tokens are void up to the instant of the revocation, those issued after it are valid."""
    revoked, user = store[REVOKED], new_user()
    before = await revoked.now(user)
    assert await revoked.check("access", user=user, issued_at=before) == _VALID
    instant = await revoked.revoke_user(user)
    after = await revoked.now(user)
    assert before < instant < after
    for issued in (before, instant):
        assert await revoked.check("access", user=user, issued_at=issued) == TokenStatus(
            revoked=True, by="user"
        )
    assert await revoked.check("access", user=user, issued_at=after) == _VALID
    assert await revoked.check("access", user=user, issued_at=datetime.fromtimestamp(before, UTC)) != _VALID
    assert await revoked.check("access", user=new_user(), issued_at=before) == _VALID


async def test_an_instant_never_moves_back(store: Store) -> None:
    """After a failover to a clock that is behind, void tokens stay void, and new ones are valid."""
    revoked, user = store[REVOKED], new_user()
    ahead = round(time.time() * 1e6) + 60_000_000
    await store.call("SET", f"revoked:user:{user}", ahead, "EX", 600)
    assert await revoked.revoke_user(user) == ahead / 1e6
    assert await revoked.check("access", user=user, issued_at=await revoked.now(user)) == _VALID


@pytest.mark.parametrize("foreign", ["nan", "inf", "1e99", "no number", str(2**53)])
async def test_a_foreign_mark_does_not_prevent_a_revocation(server: Valkey, foreign: str) -> None:
    """What is no instant, or beyond exact numbers, is replaced by the present; an instant ahead is kept."""
    async with connect(server.url, CATALOGUE) as store:
        seconds, _ = map(int, await store.call("TIME"))
        for before, latest in ((foreign, seconds + 600), (str((seconds + 900) * 1_000_000), seconds + 900)):
            mark = f"mark:{new_user()}"
            await store.call("SET", mark, before, "PX", 60_000)
            instant = int(await store.call("EVAL", REVOKE_USER.source, 1, mark, 60_000))
            assert seconds * 1_000_000 <= instant <= latest * 1_000_000
            assert int(await store.call("GET", mark)) == instant


async def test_clocks_that_are_ahead_are_allowed_for(server: Valkey) -> None:
    """With a skew, a token that a fast clock issued just after the revocation is void, too."""
    catalogue = Catalogue("skewed")
    kinds = {"access": TokenKind("skew:{jti}", lifetime=timedelta(minutes=1))}
    declared = Revocation(
        catalogue,
        tokens=kinds,
        users="skewu:{u}",
        families="skewf:{f}",
        channel="skewn",
        skew=timedelta(seconds=2),
    )
    async with connect(server.url, catalogue) as store:
        for check in (store[declared].check, _check_elsewhere(server, catalogue, declared)):
            instant = await store[declared].revoke_user(user := new_user())
            assert (await check("access", user=user, issued_at=instant + 1.9)).revoked
            assert not (await check("access", user=user, issued_at=instant + 2.1)).revoked


def _check_elsewhere(server: Valkey, catalogue: Catalogue, declared: Revocation) -> Any:
    async def check(*given: Any, **asked: Any) -> TokenStatus:
        async with connect(server.url, catalogue) as store:
            return await store[declared].check(*given, **asked)

    return check


async def test_a_family_is_void_with_tokens_issued_later(store: Store) -> None:
    """All tokens of a revoked family are void, whenever they were issued."""
    revoked, family = store[REVOKED], new_user()
    assert await revoked.check("refresh", jti=new_user(), family=family) == _VALID
    await revoked.revoke_family(family)
    assert await revoked.check("refresh", jti=new_user(), family=family) == TokenStatus(
        revoked=True, by="family"
    )
    week = timedelta(days=7).total_seconds()
    assert await store.call("TTL", f"revoked:family:{family}") > week


@pytest.mark.standalone("it counts the commands of one server")
async def test_all_three_are_read_in_one_round_trip(server: Valkey) -> None:
    """A check of token, user and family is one command on one server."""
    async with connect(server.url, CATALOGUE) as store:
        revoked, user = store[REVOKED], new_user()
        await revoked.wait_subscribed()
        before = await _commands(store)
        await revoked.check("access", jti=new_user(), user=user, issued_at=1.0, family=new_user())
        assert await _commands(store) - before == 2  # the check, and the INFO that counted before it


async def _commands(store: Store) -> int:
    info: bytes = await store.call("INFO", "stats")
    return int(info.split(b"total_commands_processed:")[1].split()[0])


async def test_a_token_that_may_be_used_once_is_spent_once(store: Store) -> None:
    """Of many concurrent callers one succeeds, and the reuse revokes the whole family."""
    revoked, jti, family = store[REVOKED], new_user(), new_user()
    until = soon()
    tries = [revoked.spend("refresh", jti, until=until, family=family) for _ in range(10)]
    assert sorted(await asyncio.gather(*tries)) == ["reused"] * 9 + ["spent"]
    assert (await revoked.check("refresh", jti=new_user(), family=family)).by == "family"
    assert (await revoked.check("refresh", jti=jti)).by == "token"


async def test_an_expired_token_cannot_be_spent(store: Store) -> None:
    """An expired token counts as expired, not reused: its family stays valid."""
    revoked, family = store[REVOKED], new_user()
    assert await revoked.spend("refresh", new_user(), until=time.time() - 61, family=family) == "expired"
    assert await revoked.check("refresh", jti=new_user(), family=family) == _VALID


async def test_spending_beyond_the_lifetime_is_an_error(store: Store) -> None:
    """Milliseconds instead of seconds are an error, not a mark for thousands of years."""
    revoked, jti = store[REVOKED], new_user()
    with pytest.raises(InvalidLifetime, match="further ahead"):
        await revoked.spend("refresh", jti, until=soon() * 1000)
    assert await revoked.check("refresh", jti=jti) == _VALID
    assert await revoked.spend("refresh", jti, until=soon()) == "spent"


async def test_a_revoked_token_cannot_be_spent(store: Store) -> None:
    """A refresh token that was revoked at sign-out counts as reused."""
    revoked, jti = store[REVOKED], new_user()
    await revoked.revoke_token("refresh", jti, until=soon())
    assert await revoked.spend("refresh", jti, until=soon()) == "reused"


async def test_other_processes_receive_revocations(store: Store, url: str) -> None:
    """A revocation in one store is in the cache of another."""
    async with connect(url, CATALOGUE) as other:
        await other[REVOKED].wait_subscribed()
        jti, user, family = new_user(), new_user(), new_user()
        await store[REVOKED].revoke_token("access", jti, until=soon())
        await store[REVOKED].revoke_user(user)
        await store[REVOKED].revoke_family(family)
        cache = other[REVOKED]._cache
        await eventually(lambda: cache.is_revoked("family", "", family))
        assert cache.is_revoked("token", "access", jti)
        assert cache.is_revoked("user", "", user, issued=1)


async def test_the_cache_is_bounded(server: Valkey) -> None:
    """The oldest revocations are dropped first; Redis still has them."""
    catalogue = Catalogue("small")
    kinds = {"access": TokenKind("small:{jti}", lifetime=timedelta(hours=1))}
    declared = Revocation(
        catalogue, tokens=kinds, users="smallu:{u}", families="smallf:{f}", channel="smalln", cached=3
    )
    async with connect(server.url, catalogue) as store:
        revoked, ids = store[declared], [new_user() for _ in range(10)]
        for jti in ids:
            await revoked.revoke_token("access", jti, until=soon())
        assert len(revoked._cache) == 3
        assert all([(await revoked.check("access", jti=jti)).revoked for jti in ids])
        assert len(revoked._cache) == 3


async def test_the_cache_survives_a_clock_that_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached revocations expire by the monotonic clock, so they hold while Redis is down."""
    right = time.time
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            revoked, jti, family = store[REVOKED], new_user(), new_user()
            await revoked.revoke_token("access", jti, until=soon())
            monkeypatch.setattr(time, "time", lambda: right() - 86_400)
            await revoked.revoke_family(family)
            server.kill()
            for jump in (0, 30 * 86_400):
                monkeypatch.setattr(time, "time", lambda jump=jump: right() + jump)
                assert (await revoked.check("access", jti=jti)).by == "token"
                assert (await revoked.check("access", family=family)).by == "family"


async def test_lost_revocations_are_written_again() -> None:
    """Each process repeats its recent revocations when a server that lost them is back."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store, connect(server.url, CATALOGUE) as other:
            revoked, jti, used, user, family = store[REVOKED], new_user(), new_user(), new_user(), new_user()
            await revoked.wait_subscribed()
            before = await revoked.now(user)
            await revoked.revoke_token("access", jti, until=soon())
            await revoked.spend("refresh", used, until=soon())
            await revoked.revoke_family(family)
            instant = await revoked.revoke_user(user)
            after = await revoked.now(user)
            server.kill()
            server.restart()

            async def known(kind: str, **asked: Any) -> bool:
                return (await other[REVOKED].check(kind, when_down="open", **asked)).revoked

            async with asyncio.timeout(60):
                while not await known("access", jti=jti):  # the oldest, which is written last
                    await asyncio.sleep(0.05)
            assert await known("refresh", jti=used)
            assert await known("access", family=family)
            assert await known("access", user=user, issued_at=before)
            assert await known("access", user=user, issued_at=instant)
            assert not await known("access", user=user, issued_at=after), "it is the same instant as before"


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_the_policy_decides_in_an_outage(how: str) -> None:
    """Closed, open and local decide as documented, and mark the status as not certain."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            revoked, known, unknown = store[REVOKED], new_user(), new_user()
            await revoked.revoke_token("access", known, until=soon())
            await revoked.wait_subscribed()
            getattr(server, how)()
            closed = await revoked.check("access", jti=unknown, when_down="closed")
            assert closed == TokenStatus(revoked=True, certain=False)
            for policy in ("open", "local"):
                verdict = await revoked.check("access", jti=unknown, when_down=policy)
                assert verdict == TokenStatus(revoked=False, certain=False)
            assert await revoked.check("access", jti=known) == TokenStatus(revoked=True, by="token")
            assert (await revoked.check("refresh", jti=unknown)).revoked
            assert not (await revoked.check("access", jti=unknown)).revoked
            server.resume()


async def test_a_mark_that_was_read_is_remembered() -> None:
    """What a check found on the server, without an announcement, is known when the server is gone."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            revoked, user, issued = store[REVOKED], new_user(), time.time()
            await revoked.wait_subscribed()
            server.ask("SET", f"revoked:user:{user}", "unreadable", "EX", 60)
            assert (await revoked.check("access", user=user, issued_at=issued)).by == "user"
            server.kill()
            assert (await revoked.check("access", user=user, issued_at=issued)).by == "user"


async def test_local_refuses_before_the_first_subscription() -> None:
    """A process started while Redis is down knows no revocations, so `local` refuses at first."""
    with valkey() as server:
        server.kill()
        async with connect(server.url, CATALOGUE, required=False) as store:
            revoked = store[REVOKED]
            assert await revoked.check("access", jti=new_user()) == TokenStatus(revoked=True, certain=False)
            server.restart()
            await revoked.wait_subscribed()
            server.kill()
            assert await revoked.check("access", jti=new_user()) == TokenStatus(revoked=False, certain=False)


async def test_a_failed_revocation_is_remembered() -> None:
    """While Redis is down revoking raises, and this process refuses the token anyway."""
    with valkey() as victim:
        async with connect(victim.url, CATALOGUE) as store:
            revoked, jti, user, family = store[REVOKED], new_user(), new_user(), new_user()
            issued = time.time()
            victim.kill()
            for revocation in (
                revoked.revoke_token("access", jti, until=soon()),
                revoked.revoke_user(user),
                revoked.revoke_family(family),
            ):
                with pytest.raises(ConnectionFailed):
                    await revocation
            assert (await revoked.check("access", jti=jti)).by == "token"
            assert (await revoked.check("access", user=user, issued_at=issued)).by == "user"
            assert (await revoked.check("access", family=family)).by == "family"


async def test_an_undecodable_mark_voids_everything(store: Store) -> None:
    """An unreadable mark of a user counts as a revocation, and is not ignored."""
    user = new_user()
    await store.call("SET", f"revoked:user:{user}", "yesterday", "EX", 60)
    assert (await store[REVOKED].check("access", user=user, issued_at=time.time() + 5)).by == "user"


async def test_a_mark_of_another_type_is_replaced(store: Store) -> None:
    """A key that another program wrote prevents neither a sign-in nor a revocation."""
    user, revoked = new_user(), store[REVOKED]
    await store.call("HSET", f"revoked:user:{user}", "another", "type")
    issued = await revoked.now(user)
    assert not (await revoked.check("access", user=user, issued_at=issued)).revoked
    await revoked.revoke_user(user)
    assert (await revoked.check("access", user=user, issued_at=issued)).by == "user"


@pytest.mark.parametrize(
    "asked", [{}, {"user": "u"}, {"issued_at": 1.0}, {"jti": "x", "user": "u"}, {"kind": "id", "jti": "x"}]
)
async def test_an_incomplete_check_is_refused(store: Store, asked: dict[str, Any]) -> None:
    """A check without marks, or without `issued_at` for a user, is an error."""
    with pytest.raises(InvalidValue):
        await store[REVOKED].check(**{"kind": "access", **asked})


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (None, {}),
        (TokenKind("b:{jti}", lifetime=timedelta(0)), {}),
        (TokenKind("b:{jti}", lifetime=timedelta(1), when_down=untyped("maybe")), {}),
        (TokenKind("b:{kind}:{jti}", lifetime=timedelta(1)), {}),
        (TokenKind("b:{jti}", lifetime=timedelta(1)), {"skew": timedelta(-1)}),
        (TokenKind("b:{jti}", lifetime=timedelta(1)), {"cached": 0}),
        (TokenKind("b:{jti}", lifetime=timedelta(1)), {"users": "revoked"}),
    ],
)
def test_invalid_declarations_are_refused(kind: TokenKind | None, options: dict[str, Any]) -> None:
    """A declaration without kinds, with an unknown policy or with other fields is an error."""
    with pytest.raises(InvalidDeclaration):
        Revocation(Catalogue("x"), tokens={"access": kind} if kind else {}, **options)
