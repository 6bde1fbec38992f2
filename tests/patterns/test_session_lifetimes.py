"""`create(lifetime=)` ends one session earlier than declared, as without "remember me"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ephemera import Catalogue, Sessions, Store, connect, fixed, sliding, sync
from ephemera.embedded import Valkey
from ephemera.errors import InvalidLifetime
from ephemera.web import Cookie, RequestSession, SessionMiddleware
from tests.patterns.session_fixtures import Session, new_user

CATALOGUE = Catalogue("remembered")
MONTH, DAY, MINUTE = timedelta(days=30), timedelta(days=1), timedelta(minutes=1)
REMEMBERED = Sessions(
    CATALOGUE, "remembered:{sid}", Session, user="user_id", index="remembered_of:{user_id}",
    lifetime=sliding(days=7), absolute_lifetime=MONTH,
)  # fmt: skip
FIXED = Sessions(
    CATALOGUE, "hour:{sid}", Session, user="user_id", index="hours_of:{user_id}", lifetime=fixed(hours=1)
)
ENDLESS = Sessions(
    CATALOGUE,
    "endless:{sid}",
    Session,
    user="user_id",
    index="endless_of:{user_id}",
    lifetime=sliding(days=7),
)


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with these sessions."""
    async with connect(server.url, CATALOGUE) as opened:
        yield opened


async def test_use_does_not_extend_beyond_a_shorter_lifetime(store: Store) -> None:
    """Reads, updates and a new token keep the end that the session was given; others keep theirs."""
    sessions, began = store[REMEMBERED], time.time()
    token = await sessions.create(Session(new_user()), lifetime=timedelta(seconds=2))
    other = await sessions.create(Session(new_user()))
    while await sessions.get(token) is not None:
        assert time.time() < began + 3, "it is extended"
        await sessions.update(token, role="admin")
        token = await sessions.rotate(token) or token
        await asyncio.sleep(0.05)
    assert await sessions.get(other) is not None


@pytest.mark.parametrize(
    ("sessions", "longest"), [(REMEMBERED, timedelta(days=7)), (FIXED, timedelta(hours=1))]
)
async def test_the_key_expires_with_the_session(
    store: Store, sessions: Sessions[Session], longest: timedelta
) -> None:
    """The given lifetime on the server, or the declared one if that ends before."""
    bound, user = store[sessions], new_user()
    for given, expected in ((MINUTE, MINUTE), (longest, longest), (None, longest)):
        token = await bound.create(Session(user), lifetime=given)
        await bound.get(token)
        left = await store.call("PTTL", sessions.keyspace.key(sid=str(bound.id_of(token))))
        assert expected.total_seconds() - 10 < left / 1000 <= expected.total_seconds()


@pytest.mark.parametrize(
    ("sessions", "given"),
    [(REMEMBERED, MONTH + MINUTE), (FIXED, DAY), (FIXED, timedelta(0)), (ENDLESS, MINUTE)],
)
async def test_a_lifetime_beyond_the_declared_one_is_refused(
    store: Store, sessions: Sessions[Session], given: timedelta
) -> None:
    """Longer than declared, not positive, or of sessions that have no end to shorten: nothing is stored."""
    user = new_user()
    with pytest.raises(InvalidLifetime):
        await store[sessions].create(Session(user), lifetime=given)
    assert await store[sessions].of_user(user) == []


def test_synchronous_code_gives_a_lifetime(server: Valkey) -> None:
    """The synchronous API has the same argument."""
    with sync.connect(server.url, CATALOGUE) as store:
        user = new_user()
        store[FIXED].create(Session(user), lifetime=MINUTE)
        [listed] = store[FIXED].of_user(user)
        assert listed.ends.timestamp() <= time.time() + 61


@pytest.mark.parametrize(
    ("sessions", "is_sent_again"), [(REMEMBERED, True), (FIXED, False)], ids=["absolute", "fixed"]
)
async def test_a_persistent_cookie_ends_with_its_session(
    store: Store, sessions: Sessions[Session], is_sent_again: bool
) -> None:
    """Its Max-Age is the given lifetime, and no later response extends it."""

    async def login(request: Request) -> Response:
        handle = RequestSession.of(request)
        await handle.start(Session(new_user()), lifetime=MINUTE)
        return PlainTextResponse("welcome")

    async def me(request: Request) -> Response:
        return PlainTextResponse("nobody" if await RequestSession.of(request).get() is None else "you")

    app = SessionMiddleware(
        Starlette(routes=[Route("/login", login), Route("/me", me)]),
        lambda _: store[sessions],
        cookie=Cookie("sid", secure=False, persistent=True),
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
        assert "Max-Age=60;" in (await browser.get("/login")).headers["set-cookie"]
        again = await browser.get("/me")
        assert again.text == "you"
        sent = again.headers.get("set-cookie", "")
        assert bool(sent) == is_sent_again
        assert not sent or int(sent.partition("Max-Age=")[2].partition(";")[0]) <= 60
