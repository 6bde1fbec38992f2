"""The one object of a FastAPI service: dependencies, limits, cached routes, pages, streams, documentation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, TypedDict

import attrs
import httpx
import msgspec
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from pydantic import BaseModel, Field

from ephemera import Catalogue, Progress, RateLimits, Sessions, sliding, sliding_window
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import field_value
from ephemera.patterns.progress import Snapshot
from ephemera.web.fastapi import ClientAddress, Ephemera, ProgressResponse, RequestSession
from tests.web.limited_app import exchange

NOWHERE = "redis://127.0.0.1:1"


class Session(msgspec.Struct):
    """Who is signed in."""

    user_id: str


class Done(msgspec.Struct, tag=True):
    """The last event of a job."""

    count: int


class Notice(BaseModel):
    """A pydantic model."""

    written: date = Field(alias="on")


@dataclass
class Product:
    """What a shop sells."""

    name: str
    price: int


CATALOGUE = Catalogue("shop")
SESSIONS = Sessions(CATALOGUE, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=1))
PROGRESS: Progress[Done] = Progress(CATALOGUE, "progress:{job_id}", Done, wake="progress:wake", terminal=Done)
OFTEN = sliding_window("often", 2, per=timedelta(hours=1))
LIMITS = RateLimits(CATALOGUE, "limits", OFTEN)
LOADED: list[str] = []
eph = Ephemera(NOWHERE, CATALOGUE, sessions=SESSIONS, client=ClientAddress(trusted=["127.0.0.1"]))
app = eph.app(title="Shop")
Me = Annotated[Session, Depends(eph.signed_in)]


@app.post("/login")
async def login(user: str, handle: Annotated[RequestSession[Session], Depends(eph.session)]) -> None:
    """Sign in."""
    await handle.start(Session(user))


@app.get("/me")
async def me(session: Me) -> str:
    """Who is signed in."""
    return session.user_id


@app.get("/greeting")
async def greeting(session: Annotated[Session | None, Depends(eph.optional)]) -> str:
    """Greet users and strangers."""
    return "stranger" if session is None else session.user_id


@app.get("/by/address")
@eph.limit("2/hour", by="address")
def by_address() -> str:
    """Count addresses, in a synchronous route."""
    return "counted"


@app.get("/by/user")
@eph.limit("2/hour", by="user")
async def by_user() -> str:
    """Count users."""
    return "counted"


@app.get("/by/header", dependencies=[eph.limit("2/hour", by="header:X-Key", name="keys")])
async def by_header() -> str:
    """Count the values of a header, by a dependency."""
    return "counted"


@app.get("/by/function/{which}")
@eph.limit(OFTEN, by=lambda request: request.path_params["which"])
async def by_function(which: str) -> str:
    """Count what a function says, by a declared rule."""
    return which


async def expensive() -> None:
    """A dependency that a denied request should not cost."""
    LOADED.append("expensive")


@app.get("/expensive")
@eph.limit("1/hour")
async def behind_a_dependency(_: Annotated[None, Depends(expensive)]) -> str:
    """A route with a limit and another dependency."""
    return "done"


@app.get("/products/{name}")
@eph.limit("100/minute", name="products")
@eph.cached("product:{name}", fresh=timedelta(minutes=1))
async def product(name: str) -> Product | None:
    """The product of a name."""
    LOADED.append(name)
    return Product(name, len(LOADED))


@app.get("/pages/{name}")
@eph.page("page:{name}", fresh=timedelta(minutes=1))
async def page(name: str) -> Product | None:
    """The page of a product."""
    LOADED.append(name)
    return None if name == "none" else Product(name, len(LOADED))


@app.get("/both/{name}")
@eph.limit("100/minute", name="both")
@eph.page("both:{name}", fresh=timedelta(minutes=1))
@eph.cached("inner:{name}", fresh=timedelta(minutes=1))
async def cached_page(name: str) -> Product | None:
    """A page of what is cached."""
    LOADED.append(name)
    return Product(name, len(LOADED))


@app.get("/jobs/{job_id}/events", response_class=ProgressResponse)
async def events(job_id: str, request: Request) -> ProgressResponse:
    """The progress of a job."""
    return eph.progress(request, PROGRESS, snapshot=_snapshot, job_id=job_id)


async def own_id(session: Me) -> str:
    """The id of the signed-in user."""
    return session.user_id


@app.get("/mine")
@eph.page("mine:{user_id}", fresh=timedelta(minutes=1), private="user_id")
async def mine(user_id: Annotated[str, Depends(own_id)]) -> str:
    """The page of a user."""
    return f"the page of {user_id}"


@app.get("/notice")
@eph.page("notice", fresh=timedelta(minutes=1))
async def notice() -> Notice:
    """A page of a pydantic model."""
    return Notice(on=date(2026, 1, 2))


@app.websocket("/ws")
@eph.limit("1/hour", by="address")
async def talk(socket: WebSocket) -> None:
    """A conversation."""
    await socket.accept()
    await socket.close()


router = APIRouter(prefix="/more", dependencies=[eph.limit("9/day", name="more")])


@router.get("/both")
async def both(session: Me) -> str:
    """A route of a router with a limit."""
    return session.user_id


app.include_router(router)


async def _snapshot(job_id: str) -> Snapshot:
    return Snapshot({"job": job_id}, ended=True)


class AccountModel(BaseModel):
    """A session that is a pydantic model."""

    user_id: str
    since: date


class AccountItems(TypedDict):
    """A session that is a TypedDict."""

    user_id: str
    since: date


@dataclass
class AccountData:
    """A session that is a dataclass."""

    user_id: str
    since: date


@attrs.define
class AccountAttributes:
    """A session that is an attrs class."""

    user_id: str
    since: date


def account_service(record: Any) -> tuple[Ephemera[Any], FastAPI]:
    """A service whose sessions are records of this type."""
    bank = Catalogue("bank")
    sessions = Sessions(bank, "account:{session_id}", record, user="user_id", lifetime=sliding(hours=1))
    accounts = Ephemera(NOWHERE, bank, sessions=sessions)
    app = accounts.app()
    handles, signed_in = Depends(accounts.session), Depends(accounts.signed_in)

    @app.post("/login")
    async def login(user: str, handle: RequestSession[Any] = handles) -> None:
        await handle.start(record(user_id=user, since=date(2026, 1, 31)))

    @app.get("/since")
    async def since(account: Any = signed_in) -> date:
        since: date = field_value(account, "since")
        return since

    @app.get("/limited")
    @accounts.limit("1/hour", by="user")
    async def limited() -> None: ...

    return accounts, app


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on the shop, whose store is open."""
    eph.url = url
    LOADED.clear()
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 4711))
    async with (
        eph.connect(),
        httpx.AsyncClient(transport=transport, base_url="https://shop") as browser,
    ):
        yield browser


async def statuses(browser: httpx.AsyncClient, path: str, n: int, **headers: str) -> list[int]:
    """The statuses of some requests."""
    return [(await browser.get(path, headers=headers)).status_code for _ in range(n)]


async def test_dependencies_of_sessions(server: Any) -> None:
    """`signed_in` is 401 until `session.start`, and `optional` is None until then."""
    async with opened(server.url) as browser:
        refused = await browser.get("/me")
        assert refused.status_code == 401
        assert refused.headers["content-type"] == "application/problem+json"
        assert (await browser.get("/greeting")).json() == "stranger"
        await browser.post("/login?user=ann")
        assert (await browser.get("/me")).json() == (await browser.get("/greeting")).json() == "ann"


@pytest.mark.parametrize("record", [AccountModel, AccountItems, AccountData, AccountAttributes])
async def test_a_session_may_be_any_record(server: Any, record: Any) -> None:
    """`signed_in` gives the record, validated, and a limit by user finds the user in it."""
    accounts, bank = account_service(record)
    accounts.url = server.url
    transport = httpx.ASGITransport(app=bank)
    async with accounts.connect(), httpx.AsyncClient(transport=transport, base_url="https://b") as browser:
        assert (await browser.get("/since")).status_code == 401
        for user in ("ann", "bob"):
            assert (await browser.post(f"/login?user={user}-{record.__name__}")).status_code == 200
            assert (await browser.get("/since")).json() == "2026-01-31"
            assert await statuses(browser, "/limited", 2) == [200, 429]


async def test_limits_count_addresses_users_headers_and_what_a_function_says(server: Any) -> None:
    """Each limit counts its own subjects, and those without a user or a header by their address."""
    async with opened(server.url) as browser:
        assert await statuses(browser, "/by/address", 3) == [200, 200, 429]
        assert await statuses(browser, "/by/address", 1, **{"x-forwarded-for": "203.0.113.7"}) == [200]
        assert await statuses(browser, "/by/user", 3) == [200, 200, 429]
        await browser.post("/login?user=ann")
        assert await statuses(browser, "/by/user", 3) == [200, 200, 429]
        await browser.post("/login?user=bob")
        assert await statuses(browser, "/by/user", 1) == [200]
        assert await statuses(browser, "/by/header", 3, **{"x-key": "one"}) == [200, 200, 429]
        assert await statuses(browser, "/by/header", 1, **{"x-key": "two"}) == [200]
        assert await statuses(browser, "/by/header", 3) == [200, 200, 429]
        assert await statuses(browser, "/by/function/a", 3) == [200, 200, 429]
        assert await statuses(browser, "/by/function/b", 1) == [200]


async def test_methods_can_be_limited(server: Any) -> None:
    """A method of an object may be a route: limited in its class, or when it is added."""
    service = Ephemera(server.url, Catalogue("methods"))

    class Desk:
        name = "desk"

        @service.limit("1/hour")
        async def in_class(self, visitor: str) -> str:
            return f"{self.name} {visitor}"

        def as_method(self, visitor: str) -> str:
            return f"{self.name} {visitor}"

    methods, desk = service.app(), Desk()
    methods.get("/in-class/{visitor}")(desk.in_class)
    methods.get("/as-method")(service.limit("1/hour")(desk.as_method))
    async with (
        service.connect(),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=methods), base_url="https://desk") as browser,
    ):
        for path in ("/in-class/ann", "/as-method?visitor=ann"):
            answers = [await browser.get(path) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 429]
            assert answers[0].json() == "desk ann"
    assert await desk.in_class("bob") == await desk.in_class(visitor="bob") == "desk bob"


async def test_a_denied_request_costs_no_other_dependency(server: Any) -> None:
    """The limit is checked before the dependencies of the route, although it is the last of them."""
    async with opened(server.url) as browser:
        assert await statuses(browser, "/expensive", 3) == [200, 429, 429]
        assert LOADED == ["expensive"]


@pytest.mark.standalone("it lists the keys of the one server")
async def test_a_header_is_not_in_a_key(server: Any) -> None:
    """A secret that a limit counts by is hashed before it becomes part of a key."""
    async with opened(server.url) as browser:
        await browser.get("/by/header", headers={"x-key": "s3cret"})
        keys = await (await eph.store()).call("KEYS", "limit:keys:*")
        assert keys
        assert not [key for key in keys if b"s3cret" in key]


async def test_a_cached_route_is_a_function_with_its_own_signature(server: Any) -> None:
    """HTTP and Python share one result until `delete`, and the limit above it counts HTTP alone."""
    async with opened(server.url) as browser:
        first = await browser.get("/products/tea")
        assert first.json() == {"name": "tea", "price": 1}
        assert '"products";r=99' in first.headers["ratelimit"]
        assert await product("tea") == await product(name="tea") == Product("tea", 1)
        assert await product.delete("tea")
        assert (await browser.get("/products/tea")).json()["price"] == 2
        assert LOADED == ["tea", "tea"]


async def test_a_page_has_an_etag_until_it_is_bumped(server: Any) -> None:
    """A client that has the page gets 304, after `bump` the new one, and 404 where there is none."""
    async with opened(server.url) as browser:
        first = await browser.get("/pages/tea")
        assert first.json() == {"name": "tea", "price": 1}
        seen = {"if-none-match": first.headers["etag"]}
        assert await statuses(browser, "/pages/tea", 1, **seen) == [304]
        await page.bump("tea")
        again = await browser.get("/pages/tea", headers=seen)
        assert (again.status_code, again.json()["price"]) == (200, 2)
        assert (await browser.get("/pages/none")).status_code == 404
        assert await page("tea") == Product("tea", 4)
        assert (await browser.get("/notice")).json() == {"on": "2026-01-02"}


async def test_a_page_may_be_of_a_cached_function(server: Any) -> None:
    """Each keeps its results, so a page that is loaded again need not run the function."""
    async with opened(server.url) as browser:
        assert (await browser.get("/both/tea")).json() == {"name": "tea", "price": 1}
        await cached_page.bump("tea")
        assert (await browser.get("/both/tea")).json() == {"name": "tea", "price": 1}
        assert LOADED == ["tea"]


async def test_a_private_page_belongs_to_its_user(server: Any) -> None:
    """Each user gets a page of their own, which no shared cache may store."""
    async with opened(server.url) as browser:
        assert (await browser.get("/mine")).status_code == 401
        for user in ("ann", "bob"):
            await browser.post(f"/login?user={user}")
            mine = await browser.get("/mine")
            assert mine.json() == f"the page of {user}"
            assert mine.headers["cache-control"].startswith("private")


async def test_a_limit_refuses_a_websocket(server: Any) -> None:
    """A WebSocket beyond its limit is closed before it is accepted."""
    async with opened(server.url):
        first, second = [await exchange(app, "websocket", "/ws", "127.0.0.1") for _ in range(2)]
    assert [message["type"] for message in first] == ["websocket.accept", "websocket.close"]
    assert [message["type"] for message in second] == ["websocket.close"]
    assert second[0]["code"] == 1013


async def test_progress_is_a_stream_of_events(server: Any) -> None:
    """A route responds with the events of a stream, up to the last one."""
    async with opened(server.url) as browser:
        store = await eph.store()
        await store[PROGRESS].append(Done(3), job_id="j1")
        answer = await browser.get("/jobs/j1/events")
        assert answer.headers["content-type"] == "text/event-stream"
        assert 'data: {"type":"Done","count":3}' in answer.text
        assert "event: end" in answer.text


async def test_input_that_no_key_can_be_made_of_is_a_bad_request(server: Any) -> None:
    """A path parameter that is too long for a key is 400, not an internal error."""
    async with opened(server.url) as browser:
        refused = await browser.get(f"/products/{'x' * 3000}")
        assert (refused.status_code, refused.json()["detail"].count("name")) == (400, 1)
        assert LOADED == []


async def test_without_a_server() -> None:
    """The application starts; cached routes load, open limits admit, and what needs a session is 503."""
    async with opened(NOWHERE) as browser:
        assert (await browser.get("/products/tea")).json() == {"name": "tea", "price": 1}
        assert (await browser.get("/pages/tea")).status_code == 200
        assert await statuses(browser, "/by/address", 3) == [200, 200, 200]
        signing_in = await browser.post("/login?user=ann")
        assert signing_in.status_code == 503
        assert signing_in.headers["content-type"] == "application/problem+json"
        assert signing_in.headers["retry-after"]


def test_the_document_has_the_problems_of_each_route() -> None:
    """401, 429 and 503 are problem documents where a dependency can raise them, and nowhere else."""
    document = app.openapi()
    found = {
        path: {status for status in operation["responses"] if status not in ("200", "422")}
        for path, operations in document["paths"].items()
        for operation in operations.values()
    }
    limited, denied, pages = {"429", "503"}, {"401", "503"}, {"202", "304", "404", "503"}
    assert found == {
        "/login": {"503"},
        "/me": denied,
        "/greeting": {"503"},
        "/by/address": limited,
        "/by/user": limited,
        "/by/header": limited,
        "/by/function/{which}": limited,
        "/expensive": limited,
        "/products/{name}": limited | {"400"},
        "/pages/{name}": pages | {"400"},
        "/both/{name}": limited | pages | {"400"},
        "/jobs/{job_id}/events": {"204"},
        "/notice": pages,
        "/mine": pages | denied | {"400"},
        "/more/both": limited | denied,
    }
    problem = document["paths"]["/me"]["get"]["responses"]["401"]["content"]
    reference = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    assert problem == {"application/problem+json": reference}
    required = document["components"]["schemas"]["ProblemDocument"]["required"]
    assert required == ["type", "title", "status", "detail"]
    schemes = document["components"]["securitySchemes"]
    assert schemes == {"Session": {"type": "apiKey", "in": "cookie", "name": "__Host-session"}}
    assert document["paths"]["/me"]["get"]["security"] == [{"Session": []}]
    assert "security" not in document["paths"]["/by/address"]["get"]
    events = document["paths"]["/jobs/{job_id}/events"]["get"]["responses"]["200"]["content"]
    assert set(events) == {"text/event-stream"}
    assert "ETag" in document["paths"]["/pages/{name}"]["get"]["responses"]["200"]["headers"]
    assert app.openapi() == document


def test_what_a_route_declares_is_in_the_catalogue() -> None:
    """Inline limits, caches and pages are declarations like others, once their module is imported."""
    patterns = {keyspace.pattern for keyspace in CATALOGUE}
    inline = {"limit:by_address:{subject}", "limit:keys:{subject}", "limits:keys_denied"}
    assert patterns >= inline | {"product:{name}", "loading:product:{name}", "page:{name}"}
    assert CATALOGUE["product:{name}"].purpose == "The product of a name"


def test_mistakes_are_found_at_import() -> None:
    """What cannot work is refused where it is written, with what to do."""
    eph = Ephemera(NOWHERE, Catalogue("mistakes"))
    minute = timedelta(minutes=1)

    async def untyped(name: str):  # type: ignore[no-untyped-def]
        ...

    async def by_page(name: str, page: int = 1) -> str:
        return name

    for wrong in ((NOWHERE,), (eph.catalogues[0], NOWHERE)):
        with pytest.raises(InvalidDeclaration, match=r"write: Ephemera\(url, catalogue\)"):
            Ephemera(*wrong)
    with pytest.raises(InvalidDeclaration, match="60/minute"):
        eph.limit("60 a minute")
    with pytest.raises(InvalidDeclaration, match="header:NAME"):
        eph.limit("60/minute", by="adress")
    with pytest.raises(InvalidDeclaration, match="sessions="):
        eph.limit("60/minute", by="user")
    with pytest.raises(InvalidDeclaration, match="name="):
        FastAPI().get("/", dependencies=[eph.limit("60/minute")])(by_page)  # type: ignore[list-item]
    with pytest.raises(InvalidDeclaration, match="annotate"):
        eph.cached("x:{name}", fresh=minute)(untyped)
    with pytest.raises(InvalidDeclaration, match="takes name, page"):
        eph.cached("y:{name}", fresh=minute)(by_page)
    with pytest.raises(InvalidDeclaration, match="fresh="):
        eph.cached("z:{name}")
    with pytest.raises(InvalidDeclaration, match="private="):
        eph.page("p:{name}:{page}", fresh=minute, private="name")(by_page)
    tiers = sliding_window("tiers", {"free": 1, "pro": 2}, per=minute)
    RateLimits(eph.catalogues[0], "tiers", tiers)
    with pytest.raises(InvalidDeclaration, match="Limited"):
        eph.limit(tiers)
    with pytest.raises(InvalidDeclaration, match="sessions=SESSIONS"):
        Depends(eph.signed_in)
    eph.limit("1/hour", name="twice")
    with pytest.raises(InvalidDeclaration, match="two limits have this name"):
        eph.limit("1/hour", name="twice")


@pytest.mark.parametrize("included", [False, True])
async def test_a_limit_or_a_page_above_its_route_is_refused(included: bool) -> None:
    """No request would reach it, so the application does not start, as it does with the right order."""
    eph = Ephemera(NOWHERE, Catalogue("order"))
    app = eph.app()
    router = APIRouter()
    routes: FastAPI | APIRouter = router if included else app

    minute = timedelta(minutes=1)

    @routes.get("/things/{name}")
    @eph.limit("9/minute", name="things")
    @eph.limit("90/hour")
    async def thing(name: str) -> str:
        return name

    @routes.get("/pages/{name}")
    @eph.page("page:{name}", fresh=minute)
    async def page(name: str) -> str:
        return name

    if included:
        app.include_router(router, prefix="/v1")
    async with eph.lifespan(app):
        pass

    async def late(name: str) -> str:
        return name

    routes.get("/late/{name}")(late)
    for function in (eph.limit("9/minute")(late), eph.page("late:{name}", fresh=minute)(late)):
        with pytest.raises(InvalidDeclaration, match=r"@eph\.limit and @eph\.page below @app\.get"):
            async with eph.lifespan(app):
                pass
        routes.get("/function/{name}")(function)  # as it should be
    async with eph.lifespan(app):
        pass


async def test_one_store_at_a_time() -> None:
    """A cached function without an open store says how to open one, and a second one is refused."""
    eph = Ephemera(NOWHERE, Catalogue("single"))

    @eph.cached("thing:{name}", fresh=timedelta(minutes=1))
    async def thing(name: str) -> str:
        return name

    with pytest.raises(RuntimeError, match=r"async with eph\.connect"):
        await thing("x")
    async with eph.connect() as store:
        assert await thing("x") == "x"
        with pytest.raises(RuntimeError, match="one at a time"), eph.use(store):
            pass


async def test_the_lifespan_opens_the_store_and_shares_it(server: Any) -> None:
    """The lifespan yields the store for what reads the state, and closes it at the end."""
    eph.url = server.url
    async with eph.lifespan(app) as state:
        assert state["store"] is await eph.store()
    with pytest.raises(RuntimeError):
        await eph.store()
