"""Cached resources over HTTP: tags, 304, HEAD, codings, private pages; missing, slow and failing loads."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route

from ephemera.embedded import Valkey
from ephemera.keyspace import Store
from ephemera.patterns.cache import cache_engine
from ephemera.web import ResourceApp
from ephemera.web._http_cache import _matches, _matching_tag
from ephemera.web.fastapi import add_resource
from tests.patterns.league_site import SECOND, League, Source, connect_league
from tests.web.http_cache_app import Reply, application, ask, user_of
from tests.wire.conditions import eventually


class Opened:
    """An application, its store and its source."""

    def __init__(self, league: League, store: Store, source: Source) -> None:
        self.league, self.store, self.source = league, store, source
        self.site = store[league.site]
        self.app: FastAPI = application(league, store)

    async def get(self, target: str, **headers: str) -> Reply:
        """Ask for a page."""
        return await ask(self.app, target, headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.fixture
async def opened(server: Valkey) -> AsyncIterator[Opened]:
    """A league of its own."""
    league = League(f"w{uuid4().hex[:8]}", wait=10 * SECOND)
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        yield Opened(league, store, source)


async def test_a_page_has_its_headers(opened: Opened) -> None:
    """200 with the body, its tag, version, Cache-Control and Vary."""
    answer = await opened.get("/table")
    assert answer.status == 200
    assert answer.body == b'{"points":1,"pad":""}'
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["cache-control"] == "public, no-cache"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert len(answer.headers["x-resource-version"]) == 16
    assert answer.headers["etag"].startswith('"')


async def test_a_client_with_the_page_gets_304(opened: Opened, server: Valkey) -> None:
    """304 has no body and the same headers, and a hundred of them take no round trip."""
    first = await opened.get("/table")
    await opened.get("/table")
    before = _commands(server)
    for _ in range(100):
        answer = await opened.get("/table", if_none_match=first.headers["etag"])
        assert (answer.status, answer.body) == (304, b"")
    assert _commands(server) - before < 10
    for name in ("etag", "x-resource-version", "cache-control", "vary"):
        assert answer.headers[name] == first.headers[name]
    assert "content-length" not in answer.headers
    assert opened.source.loads == 1


def _commands(server: Valkey) -> int:
    stats = str(server.ask("INFO", "stats")).splitlines()
    return next(int(line.split(":")[1]) for line in stats if line.startswith("total_commands_processed"))


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ("{etag}", 304),
        ("W/{etag}", 304),
        ('"other", {etag}', 304),
        ('"other" ,W/{etag}, "more"', 304),
        (', {etag}, ,"more",', 304),
        ("*", 304),
        (" * ", 304),
        ('"other"', 200),
        ('""', 200),
        ('"a,b", "c"', 200),
        ("{bare}", 200),
        ('"other" {etag}', 200),
        ("{etag}, *", 200),
        ("w/{etag}", 200),
        ("", 200),
    ],
)
async def test_if_none_match_follows_the_rfc(opened: Opened, tags: str, status: int) -> None:
    """Lists, weak tags and `*` match; anything else is ignored."""
    etag = (await opened.get("/table")).headers["etag"]
    await opened.get("/table")
    given = tags.format(etag=etag, bare=etag.strip('"'))
    assert (await opened.get("/table", if_none_match=given)).status == status
    cache_engine(opened.store[opened.league.table.cache]).drop_local(opened.league.table.at().key)
    assert (await opened.get("/table", if_none_match=given)).status == status  # by the page's head


def test_several_lines_are_one_list() -> None:
    """A tag may be in any line; an overlong list is ignored."""
    assert _matches(b'"a", "b"', b'W/"b"')
    assert _matching_tag(b'"a", W/"b"', "b") == b'W/"b"'
    assert _matching_tag(b"*", "b") is None
    assert not _matches(b'"a", ' * 10_000 + b'"b"', b'"b"')


async def test_a_304_does_not_fetch_the_payload(opened: Opened) -> None:
    """A process without a local page compares the tag first, and does not fetch the payload."""
    opened.source.pad = "".join(chr(33 + number % 90) for number in range(50_000))
    first = await opened.get("/results")
    other = Opened(opened.league, opened.store, opened.source)
    cache_engine(opened.store[opened.league.results.cache]).drop_local(opened.league.results.at().key)
    answer = await other.get("/results", if_none_match=first.headers["etag"])
    assert answer.status == 304
    assert answer.headers["x-resource-version"] == first.headers["x-resource-version"]
    assert opened.store[opened.league.results].peek(opened.league.results.at().key) is None


async def test_head_has_the_headers_of_get(opened: Opened) -> None:
    """The headers of GET, its length included; 304 where GET would."""
    get, head = await opened.get("/table"), await ask(opened.app, "/table", "HEAD")
    assert (head.status, head.body, head.headers) == (200, b"", get.headers)
    tagged = {"if-none-match": get.headers["etag"]}
    assert (await ask(opened.app, "/table", "HEAD", tagged)).status == 304


async def test_other_methods_are_refused(opened: Opened) -> None:
    """405 with the allowed methods."""
    answer = await ask(opened.app, "/table", "DELETE")
    assert answer.status == 405
    assert {each.strip() for each in answer.headers["allow"].split(",")} == {"GET", "HEAD"}


@pytest.mark.standalone("pages of several slots are bumped together, but not in one step")
async def test_the_next_poll_sees_a_bump(opened: Opened) -> None:
    """Every changed page has new content, another tag and a larger version."""
    before = {path: await opened.get(path) for path in ("/table", "/results")}
    opened.source.points = 2
    await opened.site.bump(opened.league.table.at(), opened.league.results.at())
    versions = set()
    for path, old in before.items():
        answer = await opened.get(path, if_none_match=old.headers["etag"])
        assert answer.status == 200
        assert b'"points":2' in answer.body
        assert answer.headers["x-resource-version"] > old.headers["x-resource-version"]
        versions.add(answer.headers["x-resource-version"])
    assert len(versions) == 1


async def test_gzip_is_sent_where_accepted(opened: Opened) -> None:
    """A large page is sent compressed as stored, or plain; the tag is weak, as both share it."""
    opened.source.pad = "goal " * 1000
    zipped = await opened.get("/table", accept_encoding="br, gzip;q=0.8")
    plain = await opened.get("/table", accept_encoding="gzip;q=0")
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == plain.body
    assert "content-encoding" not in plain.headers
    assert zipped.headers["etag"] == plain.headers["etag"]
    assert zipped.headers["etag"].startswith('W/"')
    assert zipped.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip;q=0, *", None),
        ("*;q=0.5, gzip; q=0.000", None),
        ("br, *;q=0.1", "gzip"),
        ("*;q=0, GZIP", "gzip"),
        ("identity", None),
    ],
)
async def test_a_refused_coding_is_not_sent(opened: Opened, accepted: str, coding: str | None) -> None:
    """`*` stands for codings that are not named, and a weight of 0 refuses, however it is written."""
    opened.source.pad = "goal " * 1000
    answer = await opened.get("/table", accept_encoding=accepted)
    assert answer.headers.get("content-encoding") == coding


async def test_private_pages_belong_to_their_user(opened: Opened) -> None:
    """The user comes from the session; without one the response is 401; shared caches may not store it."""
    opened.source.picks = {"ann": "2:1"}
    ann = await opened.get("/mine", x_user="ann")
    assert b"2:1" in ann.body
    assert ann.headers["cache-control"] == "private, no-cache"
    assert ann.headers["vary"] == "Accept-Encoding, Cookie, Authorization"
    anonymous = await opened.get("/mine", if_none_match=ann.headers["etag"])
    assert anonymous.status == 401
    assert anonymous.headers["content-type"] == "application/problem+json"


async def test_a_private_resource_needs_its_user(opened: Opened) -> None:
    """Without `user=`, or with the user in the path, it cannot be served at all."""
    with pytest.raises(TypeError, match="give user="):
        ResourceApp(opened.league.picks)
    with pytest.raises(TypeError, match="leave out user="):
        ResourceApp(opened.league.table, user=user_of)
    with pytest.raises(TypeError, match="not from the path"):
        add_resource(opened.app, "/picks/{user_id}", opened.league.picks, user=user_of)
    with pytest.raises(TypeError, match="nothing gives match_id"):
        add_resource(opened.app, "/forgotten", opened.league.live)


async def test_fields_come_from_the_path_or_the_query(opened: Opened) -> None:
    """A match by its path, in a router that is included, by the query, or by its default."""
    assert b'"match":"7"' in (await opened.get("/md/live/7")).body
    assert b'"match":"8"' in (await opened.get("/live?match_id=8")).body
    assert b'"match":"1"' in (await opened.get("/live")).body


async def test_a_missing_page_is_404_and_an_invalid_one_400(opened: Opened) -> None:
    """Both are problem documents; no input is a server error."""
    missing = await opened.get("/md/live/2000")
    assert (missing.status, missing.headers["content-type"]) == (404, "application/problem+json")
    assert (await opened.get("/md/live/2000", if_none_match="*")).status == 404
    assert (await opened.get(f"/live?match_id={'9' * 3000}")).status == 400


async def test_no_cache_stores_a_refusal(opened: Opened) -> None:
    """Refusals have `no-store`, as caches may store a 404 by default."""
    answers = [await opened.get("/md/live/2000"), await opened.get("/mine")]
    answers.append(await opened.get(f"/live?match_id={'9' * 3000}"))
    opened.source.broken = True
    answers.append(await opened.get("/results"))
    assert [answer.status for answer in answers] == [404, 401, 400, 503]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


@pytest.mark.parametrize("where", ["route", "router", "application", "included"])
async def test_a_dependency_that_would_not_run_is_refused(opened: Opened, where: str) -> None:
    """A FastAPI dependency that would not run is an error."""

    def refuse() -> None:
        raise HTTPException(403)

    checks = [Depends(refuse)]
    app = FastAPI(dependencies=checks if where == "application" else None)
    router = APIRouter(dependencies=checks if where == "router" else None)
    about: dict[str, Any] = {"dependencies": checks} if where == "route" else {}

    async def serve() -> None:
        place = app if where == "application" else router
        add_resource(place, "/", opened.league.table, store=lambda _: opened.store, **about)
        app.include_router(router, prefix="/in", dependencies=checks)
        await ask(app, "/in/")

    with pytest.raises(TypeError, match="do not run"):
        await serve()
    assert opened.source.loads == 0


async def test_a_page_that_is_not_loaded_yet_is_202(server: Valkey) -> None:
    """After a short wait: a short body and Retry-After; the load continues for the next poll."""
    league = League(f"w{uuid4().hex[:8]}", wait=SECOND / 10)
    source = Source(1)
    async with connect_league(server.url, league, source) as store:
        opened = Opened(league, store, source)
        opened.source.gate.clear()
        answer = await opened.get("/results")
        assert answer.status == 202
        while not opened.source.loads:  # the load may not have started yet on a busy machine
            answer = await opened.get("/results")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["cache-control"] == "no-store"
        assert b"preparing" in answer.body
        head = await ask(opened.app, "/results", "HEAD")
        assert (head.status, head.headers, head.body) == (202, answer.headers, b"")
        opened.source.gate.set()
        while (answer := await opened.get("/results")).status == 202:
            pass
        assert answer.status == 200
        assert opened.source.loads == 1


async def test_a_failing_source_is_503(opened: Opened) -> None:
    """Without a stale page: a problem document and Retry-After; the source is called once."""
    opened.source.broken = True
    for _ in range(10):
        answer = await opened.get("/results")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert opened.source.loads == 1


async def test_a_failing_source_with_a_stale_page_is_200(opened: Opened) -> None:
    """The stale page is served, and polls of it get 304."""
    first = await opened.get("/results")
    await opened.store[opened.league.results.cache].expire()
    opened.source.broken = True
    assert (await opened.get("/results")).status == 200
    await eventually(lambda: opened.source.loads == 2)
    assert (await opened.get("/results", if_none_match=first.headers["etag"])).status == 304


async def test_a_stale_page_has_cache_status(opened: Opened) -> None:
    """A page that is stale for a second has the Cache-Status header of RFC 9211; a fresh one has none."""
    first = await opened.get("/brief")
    assert "cache-status" not in first.headers
    opened.source.broken = True
    async with asyncio.timeout(60):
        while "cache-status" not in (answer := await opened.get("/brief")).headers:
            await asyncio.sleep(0.05)
    assert (answer.status, answer.headers["cache-status"]) == (200, "ephemera; hit; ttl=-1")
    polled = await opened.get("/brief", if_none_match=first.headers["etag"])
    assert (polled.status, "cache-status" in polled.headers) == (304, True)


async def test_max_age_never_exceeds_the_freshness(opened: Opened) -> None:
    """`max-age` is the declared one, or the rest of the page's freshness."""
    answer = await opened.get("/md/live/1")
    assert answer.headers["cache-control"] == "public, max-age=10"
    live = opened.store[opened.league.live]
    await opened.get("/md/live/1")
    page = live.peek(opened.league.live.at(match_id="1").key)
    assert page is not None
    page.made_at -= 55_000
    answer = await opened.get("/md/live/1", if_none_match=answer.headers["etag"])
    assert answer.status == 304
    assert answer.headers["cache-control"] == "public, max-age=4"
    page.made_at -= 55_000
    assert (await opened.get("/md/live/1")).headers["cache-control"] == "public, no-cache"


async def test_a_query_parameter_selects_another_resource(opened: Opened) -> None:
    """With `season=` the page is that of the season, with its own tag; nothing else changes the page."""
    plain, past = await opened.get("/table"), await opened.get("/table?season=2025")
    assert plain.body == b'{"points":1,"pad":""}'
    assert past.body == b'{"season":"2025","points":1}'
    assert (await opened.get("/table?page=2")).body == plain.body
    again = await opened.get("/table?season=2025", if_none_match=past.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    crossed = await opened.get("/table", if_none_match=past.headers["etag"])
    assert (crossed.status, crossed.body) == (200, plain.body)
    assert (await opened.get("/table?season=")).body == b'{"season":"","points":1}'
    (documented,) = opened.app.openapi()["paths"]["/table"]["get"]["parameters"]
    assert (documented["name"], documented["in"], documented["required"]) == ("season", "query", False)


async def test_openapi_documents_every_response(opened: Opened) -> None:
    """Path, query and every status of a resource and of prewarming are documented."""
    paths = opened.app.openapi()["paths"]
    live = paths["/md/live/{match_id}"]["get"]
    assert {"200", "202", "304", "400", "404", "503"} <= live["responses"].keys()
    assert live["parameters"][0]["name"] == "match_id"
    assert live["summary"] == "A match"
    assert "401" in paths["/mine"]["get"]["responses"]
    assert paths["/live"]["get"]["parameters"][0]["schema"]["default"] == "1"
    assert paths["/table"]["get"]["tags"] == ["league"]
    assert paths["/prewarm"]["post"]["responses"].keys() >= {"202", "403"}


async def test_starlette_serves_it_below_middlewares_that_change_messages(opened: Opened) -> None:
    """A middleware that changes the messages of one response does not affect the next."""
    opened.source.pad = "x" * 900
    app = Starlette(routes=[Route("/", ResourceApp(opened.league.table, store=lambda _: opened.store))])
    app.add_middleware(GZipMiddleware, minimum_size=10)
    first = await ask(app, "/")
    for _ in range(3):
        answer = await ask(app, "/", headers={"accept-encoding": "gzip"})
        assert gzip.decompress(answer.body) == first.body
        again = await ask(app, "/", headers={"if-none-match": first.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
