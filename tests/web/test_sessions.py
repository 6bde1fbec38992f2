"""Sessions on the web: the cookie and its attributes, 401 and 503 as problem documents, and hostile input."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from ephemera.embedded import Valkey, valkey
from ephemera.errors import InvalidCookie
from ephemera.keyspace import connect
from ephemera.web import Cookie, Message, Problem, Receive, RequestSession, Scope, Send, SessionMiddleware
from ephemera.web._cookies import private_headers
from tests.patterns.session_fixtures import CATALOGUE, SLIDING, Session, new_user
from tests.untyped import untyped
from tests.web.session_app import application, browser

COOKIE = "__Host-session"


@pytest.fixture
async def client(server: Valkey) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on the application."""
    async with browser(server.url) as opened:
        yield opened


async def test_signing_in_and_out(client: httpx.AsyncClient) -> None:
    """The sign-in sets the cookie, which authenticates, and the sign-out ends the session and clears it."""
    user = new_user()
    assert (await client.get("/me")).status_code == 401
    signed_in = await client.post(f"/login/{user}")
    token = client.cookies[COOKIE]
    assert signed_in.headers["set-cookie"] == f"{COOKIE}={token}; Path=/; HttpOnly; Secure; SameSite=Lax"
    assert signed_in.headers["cache-control"] == "no-store"
    assert (await client.get("/me")).json() == {"user_id": user, "role": "viewer"}

    signed_out = await client.post("/logout")
    cleared = f"{COOKIE}=; Max-Age=0; Path=/; HttpOnly; Secure; SameSite=Lax"
    assert signed_out.headers["set-cookie"] == cleared
    assert signed_out.headers["cache-control"] == "private"
    assert COOKIE not in client.cookies
    client.cookies.set(COOKIE, token)
    assert (await client.get("/me")).status_code == 401


async def test_an_ordinary_response_sets_no_cookie(client: httpx.AsyncClient) -> None:
    """Only a change of the token sets the cookie."""
    await client.post(f"/login/{new_user()}")
    assert "set-cookie" not in (await client.get("/me")).headers
    assert "set-cookie" not in (await client.get("/open")).headers


@pytest.mark.standalone("it empties the scripts of one server")
async def test_every_request_with_a_cookie_extends_the_session(server: Valkey) -> None:
    """Also one whose route does not read the session and responds before Redis replies."""
    async with connect(server.url, CATALOGUE) as store:
        token = await store[SLIDING].create(Session(new_user()))
        key = f"session:{store[SLIDING].id_of(token)}"
        await store.call("PEXPIRE", key, 60_000)
        await store.call("SCRIPT", "FLUSH")
        cookie = [(b"cookie", f"{COOKIE}={token}".encode())]
        sent = await _respond(application(store), "/plain", cookie)
        assert sent[0]["status"] == 200
        ttls = [
            await store.call("PTTL", key) for _ in range(50)
        ]  # loading the script takes a second round trip
        assert ttls[-1] > 60_000


async def test_a_request_without_a_session_gets_a_problem_document(client: httpx.AsyncClient) -> None:
    """401 is a problem document of RFC 9457 that says what to do."""
    refused = await client.get("/me")
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["www-authenticate"] == "Cookie"
    assert refused.json() == {
        "type": "about:blank",
        "title": "Unauthorized",
        "status": 401,
        "detail": "Sign in first: there is no valid session.",
    }


async def test_rotation_and_update(client: httpx.AsyncClient) -> None:
    """After `update` and `rotate` the browser has a new token, and the old one is void."""
    await client.post(f"/login/{new_user()}")
    old = client.cookies[COOKIE]
    assert (await client.post("/promote")).json() == {"updated": True, "rotated": True}
    assert client.cookies[COOKIE] != old
    assert (await client.get("/me")).json()["role"] == "admin"
    client.cookies.clear()
    assert (await client.get("/me", headers={"cookie": f"{COOKIE}={old}"})).status_code == 401


async def test_signing_in_again_ends_the_session_before(client: httpx.AsyncClient) -> None:
    """An id that was planted before the sign-in is worth nothing after it."""
    await client.post(f"/login/{new_user()}")
    planted = client.cookies[COOKIE]
    await client.post(f"/login/{new_user()}")
    client.cookies.clear()
    assert (await client.get("/me", headers={"cookie": f"{COOKIE}={planted}"})).status_code == 401


async def test_the_cookie_of_an_expired_session_is_left_alone(client: httpx.AsyncClient) -> None:
    """A late response to an old token must not clear the new one."""
    await client.post(f"/login/{new_user()}")
    old = client.cookies[COOKIE]
    await client.post("/promote")
    client.cookies.clear()
    assert "set-cookie" not in (await client.get("/open", headers={"cookie": f"{COOKIE}={old}"})).headers


async def test_no_shared_cache_stores_a_cookie(server: Valkey) -> None:
    """A public page becomes private when it sets a cookie."""
    async with browser(server.url, cookie=Cookie(persistent=True)) as client:
        public = await client.get("/front")
        assert public.headers["cache-control"] == "public, max-age=60, s-maxage=600"
        await client.post(f"/login/{new_user()}")
        known = await client.get("/front")
        assert "set-cookie" in known.headers
        assert known.headers["cache-control"] == "private, max-age=60"


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ([], b"no-store"),
        ([b"no-store"], b"no-store"),
        ([b"private, max-age=5"], b"private, max-age=5"),
        ([b"Public,max-age=5", b"S-MaxAge=9"], b"private, max-age=5"),
        ([b'private="x-user", max-age=5'], b"private, max-age=5"),
        ([b"", b"no-cache"], b"private, no-cache"),
    ],
)
def test_a_response_with_a_cookie_is_private(given: list[bytes], becomes: bytes) -> None:
    """Whatever the application's Cache-Control, no shared cache may store the response; browsers may."""
    headers = [(b"x", b"1"), *((b"Cache-Control", value) for value in given)]
    assert private_headers(iter(headers)) == [(b"x", b"1"), (b"cache-control", becomes)]


async def test_a_persistent_cookie_slides(server: Valkey) -> None:
    """It is sent with every response, with the session's new lifetime."""
    async with browser(server.url, cookie=Cookie(persistent=True)) as client:
        await client.post(f"/login/{new_user()}")
        token = client.cookies[COOKIE]
        header = (await client.get("/me")).headers["set-cookie"]
        assert header == f"{COOKIE}={token}; Max-Age=86400; Path=/; HttpOnly; Secure; SameSite=Lax"


async def test_a_cookie_for_a_domain(server: Valkey) -> None:
    """Another name, domain, path and SameSite policy appear in the header."""
    cookie = Cookie("sid", same_site="strict", domain="example.org", path="/app", secure=False)
    async with browser(server.url, cookie=cookie) as client:
        header = (await client.post(f"/login/{new_user()}")).headers["set-cookie"]
        assert header.endswith("; Path=/app; Domain=example.org; HttpOnly; SameSite=Strict")


@pytest.mark.parametrize(
    "options",
    [
        {"domain": "example.org"},
        {"path": "/app"},
        {"secure": False},
        {"name": "__Secure-x", "secure": False},
        {"name": "a b"},
        {"name": ""},
        {"name": "x", "same_site": "none", "secure": False},
        {"name": "x", "same_site": "maybe"},
        {"name": "x", "path": "/; Domain=evil"},
        {"name": "x", "domain": "a\r\nb"},
    ],
)
def test_a_cookie_that_browsers_would_refuse_is_an_error(options: dict[str, Any]) -> None:
    """Options that `__Host-` forbids, or that would break the header, are an error."""
    with pytest.raises(InvalidCookie):
        Cookie(**options)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"__Host-session=abc", "abc"),
        (b"a=b; __Host-session=abc; c=d", "abc"),
        (b"a=b;__Host-session=abc", "abc"),
        (b"a=b; \t __Host-session= abc ", "abc"),
        (b"x__Host-session=evil; __Host-session=abc", "abc"),
        (b'a="b __Host-session=evil"; __Host-session=abc', "abc"),
        (b"a=__Host-session=evil", None),
        (b"a=b", None),
        (b"__Host-session=", ""),
        (b"__Host-session", None),
        (b"", None),
    ],
)
def test_the_cookie_is_found_by_its_exact_name(header: bytes, value: str | None) -> None:
    """A cookie's name inside another cookie's name or value is not that cookie."""
    assert Cookie().find([(b"host", b"x"), (b"cookie", header)]) == value
    assert Cookie().find([(b"cookie", b"z=1"), (b"cookie", header)]) == value


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_an_outage_is_503_where_a_session_is_needed(how: str) -> None:
    """Requests that need a session get 503 with Retry-After and keep the cookie; others are served."""
    with valkey() as server:
        async with browser(server.url) as client:
            await client.post(f"/login/{new_user()}")
            getattr(server, how)()
            for path in ("/me", "/open"):
                refused = await client.get(path)
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "1"
                assert refused.headers["content-type"] == "application/problem+json"
                assert "set-cookie" not in refused.headers
            for path in (f"/login/{new_user()}", "/logout"):
                undone = await client.post(path)
                assert (undone.status_code, undone.headers["retry-after"]) == (503, "1")
                assert "set-cookie" not in undone.headers  # the user can try to sign out again
            assert (await client.get("/plain")).status_code == 200
            client.cookies.clear()
            assert (await client.get("/open")).json() == {"signed_in": False, "known": True}
            assert (await client.get("/me")).status_code == 401
            server.resume()


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_an_unused_read_fails_silently(how: str) -> None:
    """The failed read of a route that needs no session is not reported as an unretrieved exception."""
    overlooked: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: overlooked.append(about["message"]))
    with valkey() as server:
        async with browser(server.url) as client:
            await client.post(f"/login/{new_user()}")
            getattr(server, how)()
            for _ in range(3):
                assert (await client.get("/plain")).status_code == 200
            assert (await client.get("/open")).status_code == 503  # and those before it have failed
            gc.collect()
            server.resume()
    assert overlooked == []


async def test_an_outage_can_leave_open_routes_open() -> None:
    """With `anonymous` open routes are served without a session, and protected ones still get 503."""
    with valkey() as server:
        async with browser(server.url, when_down="anonymous") as client:
            await client.post(f"/login/{new_user()}")
            server.kill()
            assert (await client.get("/open")).json() == {"signed_in": False, "known": False}
            refused = await client.get("/me")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


def test_an_unknown_policy_is_refused() -> None:
    """A misspelt policy is an error when the application is built."""
    with pytest.raises(ValueError, match="when_down"):
        untyped(SessionMiddleware)(None, None, when_down="maybe")


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")), named=st.booleans()
)
def test_any_cookie_is_a_clean_401(server: Valkey, value: bytes, named: bool) -> None:
    """Whatever bytes are in the cookie header, the response is 401, never 500."""

    async def ask() -> None:
        async with connect(server.url, CATALOGUE) as store:
            line = COOKIE.encode() + b"=" + value if named else value
            sent = await _respond(application(store), "/me", [(b"cookie", line)])
            assert sent[0]["status"] == 401

    asyncio.run(ask())


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_to_a_token_makes_it_invalid(server: Valkey, data: st.DataObject) -> None:
    """A token with a character replaced, removed or added opens nothing and breaks nothing."""

    async def ask() -> None:
        async with connect(server.url, CATALOGUE) as store:
            token = await store[SLIDING].create(Session(new_user()))
            at = data.draw(st.integers(0, len(token) - 1))
            put = data.draw(st.text(max_size=2))
            changed = token[:at] + put + token[at + 1 :]
            opened = await store[SLIDING].get(changed)
            assert opened is None or store[SLIDING].id_of(changed) == store[SLIDING].id_of(token)

    asyncio.run(ask())


async def _respond(
    app: Any, path: str, headers: list[tuple[bytes, bytes]], kind: str = "http"
) -> list[Message]:
    """The messages of an application for a raw scope."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": f"{kind}.connect" if kind == "websocket" else "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "raw_path": path.encode(), "headers": headers, "query_string": b""}
    scope |= {"method": "GET", "root_path": "", "scheme": "https", "server": ("test", 443)}
    await app(scope, receive, send)
    return sent


async def test_a_missing_middleware_is_a_clear_error(server: Valkey) -> None:
    """`RequestSession.of` raises an error that names the middleware to add."""
    scope: Scope = {"type": "http", "headers": []}
    with pytest.raises(TypeError, match="add SessionMiddleware"):
        RequestSession.of(Request(scope))
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(RequestSession.of(Request(scope)))

    async with connect(server.url, CATALOGUE) as store:
        await untyped(SessionMiddleware(app, lambda _: store[SLIDING]))(scope, None, None)
    assert seen == [scope["state"]["session"]]


async def test_websockets_have_sessions_too(server: Valkey) -> None:
    """A WebSocket has the session, and a problem before it is accepted closes it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        handle = scope["state"]["session"]
        if await handle.get() is None:
            raise Problem(401, "Unauthorized")
        await handle.rotate()
        await send({"type": "websocket.accept"})

    async with connect(server.url, CATALOGUE) as store:
        wrapped = SessionMiddleware(app, lambda _: store[SLIDING])
        token = await store[SLIDING].create(Session(new_user()))
        cookie = [(b"cookie", f"{COOKIE}={token}".encode())]
        accepted = await _respond(wrapped, "/", cookie, "websocket")
        assert dict(accepted[0]["headers"])[b"set-cookie"].startswith(COOKIE.encode())
        closed = await _respond(wrapped, "/", [], "websocket")
        assert closed == [{"type": "websocket.close", "code": 1008, "reason": "Unauthorized"}]


async def test_a_problem_after_the_response_started_is_raised(server: Valkey) -> None:
    """A response that has started cannot be replaced, so the server gets the exception."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Problem(401, "Unauthorized")

    async with connect(server.url, CATALOGUE) as store:
        with pytest.raises(Problem):
            await _respond(SessionMiddleware(app, lambda _: store[SLIDING]), "/", [])


async def test_a_request_leaves_no_garbage_behind(server: Valkey) -> None:
    """The objects of a request are freed at its end, without the garbage collector."""

    class Exchange:
        """As a server has it: it knows the scope, and its `send` is given to the application."""

        def __init__(self, scope: Scope) -> None:
            self.scope = scope

        async def send(self, message: Message) -> None:
            pass

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await scope["state"]["session"].get()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async with connect(server.url, CATALOGUE) as store:
        token = await store[SLIDING].create(Session(new_user()))
        wrapped = SessionMiddleware(app, lambda _: store[SLIDING])
        exchange = Exchange({"type": "http", "headers": [(b"cookie", f"{COOKIE}={token}".encode())]})
        gone = weakref.ref(exchange)
        gc.disable()
        try:
            await wrapped(exchange.scope, untyped(None), exchange.send)
            del exchange
            assert gone() is None
        finally:
            gc.enable()


async def test_other_scopes_pass(server: Valkey) -> None:
    """Lifespan messages pass through unchanged."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await _respond(SessionMiddleware(app, untyped(lambda _: None)), "/", [], "lifespan")
    assert seen == ["lifespan"]


async def test_a_dependency_without_the_middleware_is_a_clear_error(server: Valkey) -> None:
    """Forgetting the middleware is a clear error at the first request."""
    async with connect(server.url, CATALOGUE) as store:
        app = application(store)
        app.user_middleware.clear()
        with pytest.raises(TypeError, match="add SessionMiddleware"):
            await _respond(app, "/me", [])


async def test_the_openapi_document_names_the_cookie(server: Valkey) -> None:
    """Protected routes show which cookie they need."""
    async with connect(server.url, CATALOGUE) as store:
        document = application(store).openapi()
        assert document["paths"]["/me"]["get"]["security"] == [{"Session": []}]
        scheme = document["components"]["securitySchemes"]["Session"]
        assert scheme == {"type": "apiKey", "in": "cookie", "name": COOKIE}
