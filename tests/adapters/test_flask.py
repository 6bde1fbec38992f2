"""Flask: sessions with the guarantees of `Sessions`, limits with headers, cached functions and views."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from flask import Blueprint, Flask
from flask.testing import FlaskClient
from werkzeug.serving import make_server

from ephemera import Catalogue, RateLimits, sliding_window
from ephemera.adapters.flask import Ephemera
from ephemera.embedded import Valkey, valkey
from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.web import ClientAddress
from tests import isolation
from tests.adapters.flask_shop import MINUTE, Shop, opened
from tests.patterns.session_fixtures import new_user

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def shop(server: Any) -> Iterator[Shop]:
    """The application on the shared server, empty of what the test before has counted and cached."""
    with opened(server.url) as shop:
        isolation.empty_shared_servers()
        yield shop


def token_of(client: FlaskClient) -> str:
    """The token in a browser's cookie."""
    cookie = client.get_cookie("session")
    assert cookie is not None
    return cookie.value


def test_a_session_is_on_the_server(shop: Shop) -> None:
    """Data survives from request to request, nested changes included, and the cookie holds none of it."""
    client = shop.client()
    assert "Set-Cookie" not in client.get("/me").headers
    first = client.post("/cart/tea")
    assert "HttpOnly" in first.headers["Set-Cookie"]
    assert first.headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in client.post("/cart/cup").headers
    assert client.get("/me").json == {"user": None, "cart": ["tea", "cup"]}
    assert "tea" not in token_of(client)


def test_a_sign_in_changes_the_token(shop: Shop) -> None:
    """The anonymous session keeps its data under a new token, and the old token is worth nothing."""
    client, user = shop.client(), new_user()
    client.post("/cart/tea")
    before = token_of(client)
    client.post(f"/login/{user}")
    assert token_of(client) != before
    assert client.get("/me").json == {"user": user, "cart": ["tea"]}
    stolen = shop.client()
    stolen.set_cookie("session", before)
    assert stolen.get("/me").json == {"user": None, "cart": []}


def test_a_token_can_be_rotated(shop: Shop) -> None:
    """After `rotate` the session is the same, and its old token is worth nothing."""
    client, user = shop.client(), new_user()
    client.post(f"/login/{user}")
    before = token_of(client)
    client.post("/rotate")
    stolen = shop.client()
    stolen.set_cookie("session", before)
    assert (client.get("/me").json or {})["user"] == user
    assert (stolen.get("/me").json or {})["user"] is None


def test_a_made_up_token_is_never_adopted(shop: Shop) -> None:
    """A session that begins with a token of the visitor's choice gets another one."""
    client = shop.client()
    for chosen in ("chosen", "x" * 43 + ".YW5u", "é" * 50, "a" * 3000):
        client.set_cookie("session", chosen)
        client.post("/cart/tea")
        assert token_of(client) != chosen


def test_all_sessions_of_a_user_end_at_once(shop: Shop) -> None:
    """`end_sessions` ends those of one user in all browsers, and may keep the one that asks."""
    user, other = new_user(), new_user()
    browsers = [shop.client() for _ in range(3)]
    for browser in browsers[:2]:
        browser.post(f"/login/{user}")
    browsers[2].post(f"/login/{other}")
    assert browsers[0].post("/password").json == {"ended": 1}
    assert [(browser.get("/me").json or {})["user"] for browser in browsers] == [user, None, other]
    assert browsers[2].post(f"/end/{user}").json == {"ended": 1}
    assert [(browser.get("/me").json or {})["user"] for browser in browsers] == [None, None, other]


def test_signing_out_ends_the_session(shop: Shop) -> None:
    """`session.clear()` ends it on the server, and deletes the cookie."""
    client = shop.client()
    client.post(f"/login/{new_user()}")
    kept = token_of(client)
    assert "Max-Age=0" in client.post("/logout").headers["Set-Cookie"]
    client.set_cookie("session", kept)
    assert client.get("/me").json == {"user": None, "cart": []}


def test_a_late_write_revives_nothing(shop: Shop) -> None:
    """A request that changes its session while all sessions of the user end does not store it."""
    client = shop.client()
    client.post(f"/login/{new_user()}")
    assert client.get("/late").status_code == 200
    assert (client.get("/me").json or {})["user"] is None


def test_a_revocation_wins_over_an_announced_sign_in(shop: Shop) -> None:
    """A sign-in that began before a revocation and ends after it is a 401, without a session."""
    client, user = shop.client(), new_user()
    shop.on_login = lambda user: shop.eph.end_sessions(user)
    refused = client.post(f"/login/{user}?announced=1")
    assert (refused.status_code, refused.mimetype) == (401, "application/problem+json")
    assert client.get_cookie("session") is None


def test_flask_s_own_use_of_the_session(shop: Shop) -> None:
    """Flashed messages arrive once; a permanent session has a cookie that lasts, and is sent each time."""
    client = shop.client()
    client.post("/flash")
    assert client.get("/flashes").json == [["info", "saved"]]
    assert client.get("/flashes").json == []
    assert "Expires=" in client.post(f"/login/{new_user()}?permanent=1").headers["Set-Cookie"]
    assert "Expires=" in client.get("/me").headers["Set-Cookie"]


def test_a_value_that_json_cannot_express_is_named(shop: Shop) -> None:
    """The error says which key of the session, and nothing is stored."""
    with pytest.raises(InvalidValue, match="'when': a timedelta"):
        shop.client().post("/unusable")


@pytest.mark.standalone("it looks at all keys of one server")
@pytest.mark.parametrize("stored", ["", "[]", "{", '{"user_id":"ann"}' * 2, "[" * 100_000])
def test_what_redis_holds_is_not_trusted(shop: Shop, stored: str) -> None:
    """Data that is not a JSON object is not a session: no user is signed in by it, and nothing fails."""
    client = shop.client()
    client.post(f"/login/{new_user()}")
    (key,) = shop.eph.store.call("KEYS", "session:*")
    assert shop.eph.store.call("HSET", key, "data", stored) == 0
    assert client.get("/me").json == {"user": None, "cart": []}


@pytest.mark.standalone("it stops the one server")
def test_an_outage_signs_no_one_out() -> None:
    """What uses the session is a 503, read or write; other views answer, and afterwards all is as before."""
    with valkey(config={"appendonly": "yes", "appendfsync": "always"}) as own, opened(own.url) as shop:
        client, user = shop.client(), new_user()
        client.post(f"/login/{user}")
        token = token_of(client)
        own.kill()
        for refused in (client.get("/me"), client.post(f"/login/{user}"), shop.client().post("/cart/tea")):
            assert (refused.status_code, refused.mimetype) == (503, "application/problem+json")
            assert refused.headers["Retry-After"] == "1"
            assert "Set-Cookie" not in refused.headers
        assert client.get("/open").text == "open"
        assert token_of(client) == token
        own.restart()
        deadline = monotonic() + 30
        while (answer := client.get("/me")).status_code == 503 and monotonic() < deadline:
            sleep(0.02)
        assert answer.json == {"user": user, "cart": []}


@pytest.mark.standalone("it looks at all keys of one server")
def test_limits_count_whom_they_say(shop: Shop) -> None:
    """By address, user, header and function; with headers, and with 429 as a problem document."""
    client, user = shop.client(), new_user()
    admitted = client.get("/by-address")
    assert admitted.headers["RateLimit-Policy"] == '"by_address";q=2;w=3600'
    assert admitted.headers["RateLimit"].startswith('"by_address";r=1;t=')
    client.get("/by-address")
    denied = client.get("/by-address")
    assert (denied.status_code, denied.mimetype) == (429, "application/problem+json")
    assert int(denied.headers["Retry-After"]) > 0
    assert (denied.json or {})["violated-policies"] == ["by_address"]

    assert [client.get("/by-user").status_code for _ in range(2)] == [200, 429]
    client.post(f"/login/{user}")
    assert [client.get("/by-user").status_code for _ in range(2)] == [200, 429]
    keys = [{"X-Api-Key": "one"}, {"X-Api-Key": "two"}, {"X-Api-Key": "one"}, {}, {}]
    assert [client.get("/by-header", headers=each).status_code for each in keys] == [200, 200, 429, 200, 429]
    assert not [key for key in shop.eph.store.call("KEYS", "limit:*") if b"one" in key]
    answers = [client.get(f"/by-function{query}") for query in ("?plan=a", "?plan=a", "", "")]
    assert [each.status_code for each in answers] == [404, 429, 404, 404]
    assert ["RateLimit" in each.headers for each in answers] == [True, True, False, False]


def test_limits_by_address_trust_only_given_proxies(server: Any) -> None:
    """Behind a trusted proxy its client is counted; what others report is not believed."""
    forwarded = [{"X-Forwarded-For": f"203.0.113.{n}"} for n in range(3)]
    with opened(server.url, client=ClientAddress(trusted=["127.0.0.1"])) as shop:
        codes = [shop.client().get("/by-address", headers=each).status_code for each in forwarded]
        assert codes == [200] * 3
    with opened(server.url) as shop:
        isolation.empty_shared_servers()
        codes = [shop.client().get("/by-address", headers=each).status_code for each in forwarded]
        assert codes == [200, 200, 429]


def test_a_subject_that_no_key_can_be_made_of_is_a_bad_request(shop: Shop) -> None:
    """It is 400, not an internal error."""
    refused = shop.client().get("/by-function", query_string={"plan": "x" * 5000})
    assert refused.status_code == 400


def test_limits_and_caches_while_redis_is_down() -> None:
    """An open limit admits, a closed one is 503, and what is cached is loaded."""
    with opened(NOWHERE) as shop:
        client = shop.client()
        assert client.get("/by-address").status_code == 200
        assert client.get("/closed").status_code == 503
        assert client.get("/prices/tea").json == {"price": 4}
        assert client.get("/products/tea").status_code == 200


def test_a_cached_function_keeps_its_signature(shop: Shop) -> None:
    """One load for many calls, until `delete`; None is remembered too."""
    price: Any = shop.price  # type: ignore[attr-defined]
    assert [price("tea"), price(name="tea"), price("milk"), price("milk")] == [4, 4, None, None]
    shop.prices["tea"] = 5
    assert price.delete("tea")
    assert price("tea") == 5
    assert next(shop.loads) == 4
    assert price.cache.keyspace.purpose == "The price of a product"


def test_concurrent_calls_load_once(shop: Shop) -> None:
    """Threads that ask for the same at once share one load, and one error reaches all of them."""
    loads: list[int] = []
    release = threading.Event()

    @shop.eph.cached("slow:{n}", fresh=MINUTE)
    def slow(n: int) -> int:
        loads.append(n)
        assert release.wait(30)
        if n < 0:
            raise ValueError(n)
        return n * 2

    with ThreadPoolExecutor(16) as pool:
        results = [pool.submit(slow, 21) for _ in range(8)]
        errors = [pool.submit(slow, -1) for _ in range(8)]
        release.set()
        assert {each.result(30) for each in results} == {42}
        assert {type(each.exception(30)) for each in errors} == {ValueError}
    assert loads.count(21) == 1


def test_loads_may_wait_for_loads(shop: Shop) -> None:
    """However many loads wait for one of their own, none waits for a free thread."""

    @shop.eph.cached("inner:{n}", fresh=MINUTE)
    def inner(n: int) -> int:
        return n

    @shop.eph.cached("outer:{n}", fresh=MINUTE)
    def outer(n: int) -> int:
        return inner(n) + 1

    with ThreadPoolExecutor(60) as pool:
        assert list(pool.map(outer, range(60), timeout=60)) == list(range(1, 61))


def test_a_page_has_an_etag_and_nothing_of_its_visitor(shop: Shop) -> None:
    """304 for who has it; it runs without session, query and headers; `delete` makes room for the next."""
    client = shop.client()
    client.post(f"/login/{new_user()}")
    first = client.get("/products/tea?q=1", headers={"x-secret": "s"})
    assert first.text == "tea: 4 (1) at /products/tea"
    assert client.get("/products/tea", headers={"if-none-match": first.headers["ETag"]}).status_code == 304
    assert client.head("/products/tea").headers["Content-Length"] == str(len(first.data))
    shop.prices["tea"] = 5
    assert client.get("/products/tea").text == first.text
    product: Any = shop.product  # type: ignore[attr-defined]
    assert product.delete("tea")
    changed = client.get("/products/tea", headers={"if-none-match": first.headers["ETag"]})
    assert (changed.status_code, changed.text) == (200, "tea: 5 (2) at /products/tea")
    assert client.get("/products/nothing").status_code == 404
    shop.prices["teapot"] = 1
    assert [client.get("/products/teapot").status_code for _ in range(2)] == [418, 418]
    shop.prices["tea"] = 6
    assert client.post("/products/tea").text.startswith("tea: 6")  # only GET is cached


def test_threads_of_a_real_server(shop: Shop) -> None:
    """Under werkzeug's threads, each visitor has their own session, a limit is exact, and pages load once."""
    server = make_server("127.0.0.1", 0, shop.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            address = f"http://127.0.0.1:{server.server_port}"
            outcomes = list(pool.map(lambda _: _visit(address), range(24)))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert all(mine for mine, _, _ in outcomes)
    assert sum(admitted for _, admitted, _ in outcomes) == 2
    assert len({page for _, _, page in outcomes}) == 1


def _visit(address: str) -> tuple[bool, bool, str]:
    """One visitor: whether their session is their own, whether the limit admitted them, and a page."""
    user = new_user()
    with httpx.Client(base_url=address, timeout=30) as browser:
        browser.post("/cart/tea")
        browser.post(f"/login/{user}")
        mine = browser.get("/me").json() == {"user": user, "cart": ["tea"]}
        admitted = browser.get("/by-address").status_code == 200
        return mine, admitted, browser.get("/products/tea").text


def test_mistakes_are_found_at_import() -> None:
    """What cannot work is refused where it is written, with what to do."""
    eph = Ephemera(NOWHERE, Catalogue("flask_mistakes"), session_lifetime=None)

    def view(name: str, page: int = 1) -> str:
        return name

    with pytest.raises(InvalidDeclaration, match="no catalogue"):
        Ephemera(NOWHERE)
    with pytest.raises(InvalidDeclaration, match="60/minute"):
        eph.limit("60 a minute")
    with pytest.raises(InvalidDeclaration, match="header:NAME"):
        eph.limit("60/minute", by="adress")
    with pytest.raises(InvalidDeclaration, match="by='user' without sessions"):
        eph.limit("60/minute", by="user")
    with pytest.raises(InvalidDeclaration, match="takes name, page"):
        eph.page("product:{name}", fresh=MINUTE)(view)
    with pytest.raises(InvalidDeclaration, match="fresh="):
        eph.cached("y:{name}")
    with pytest.raises(InvalidDeclaration, match="session_lifetime"):
        eph.end_sessions("ann")
    rule = sliding_window("declared", 1, per=MINUTE)
    RateLimits(eph.catalogues[0], "declared", rule)
    assert eph.limit(rule)(view) is not view
    app = Flask("plain")
    usual = app.session_interface
    eph.init_app(app)
    assert app.session_interface is usual


@pytest.mark.standalone("it looks at all keys of one server")
@pytest.mark.parametrize("name", ["limit", "page"])
def test_a_limit_or_a_page_above_its_route_is_refused(name: str) -> None:
    """No request would reach it, so each of the application's requests says so, even a blueprint's."""
    eph, app, views = Ephemera(NOWHERE, Catalogue("order")), Flask("order"), Blueprint("views", __name__)
    eph.init_app(app)
    app.config["TESTING"] = True

    @views.get("/things/<thing>")
    def thing(thing: str) -> str:
        return thing

    decorate: Any = eph.limit("5/minute") if name == "limit" else eph.page("thing:{thing}", fresh=MINUTE)
    replacement = decorate(thing)
    app.register_blueprint(views)
    for _ in range(2):
        with pytest.raises(InvalidDeclaration, match=r"@eph\.limit and @eph\.page below"):
            app.test_client().get("/things/tea")
    app.view_functions["views.thing"] = replacement  # as if it stood below
    assert app.test_client().get("/things/tea").text == "tea"
    eph.close()


def test_every_key_is_declared(shop: Shop, server: Valkey) -> None:
    """What the application writes is in its catalogue, and has a TTL."""
    client = shop.client()
    client.post(f"/login/{new_user()}")
    for path in ("/by-address", "/products/tea", "/prices/tea"):
        client.get(path)
    keys = shop.eph.store.call("KEYS", "*")
    catalogue = shop.eph.catalogues[0]
    assert [key for key in keys if catalogue.classify(key) is None] == []
    assert [key for key in keys if shop.eph.store.call("PTTL", key) <= 0] == []
