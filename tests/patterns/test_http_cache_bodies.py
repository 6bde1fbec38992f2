"""The content of large pages in a body store: a pointer in Redis, and what happens when either is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from secrets import token_hex
from uuid import uuid4

import pytest

from ephemera.patterns.http_cache import Page
from tests.patterns.league_site import League, Opened, Source, connect_league

OVER = 2048  # bytes


class Bodies:
    """A body store in this process, which can refuse what it is given or asked for."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.reads = 0
        self.accepts = self.returns = True
        self.before_put: Callable[[], Awaitable[None]] | None = None

    async def put(self, digest: str, content: bytes) -> bool:
        """Store content."""
        if self.before_put is not None:
            await self.before_put()
        if self.accepts:
            self.stored[digest] = content
        return self.accepts

    async def get(self, digest: str) -> bytes | None:
        """Return content."""
        self.reads += 1
        return self.stored.get(digest) if self.returns else None


@pytest.fixture
async def opened(url: str) -> AsyncIterator[Opened]:
    """A league whose table is large, on Valkey, on Redis 7 and on a cluster."""
    league = League(f"l{uuid4().hex[:8]}")
    source = Source(1)
    source.pad = token_hex(8000)
    async with connect_league(url, league, source) as store:
        yield Opened(league, store, source)


@pytest.fixture
def bodies(opened: Opened) -> Bodies:
    """The body store of this league."""
    found = Bodies()
    opened.site.store_bodies_in(found, over=OVER)
    return found


async def _table(opened: Opened) -> Page:
    page = await opened.store[opened.league.table].page()
    assert page is not None
    return page


async def _stored(opened: Opened) -> bytes:
    found: bytes | None = await opened.store.call("GET", opened.league.table.at().key)
    return found or b""


async def test_redis_has_a_pointer_to_a_large_page(opened: Opened, bodies: Bodies) -> None:
    """Its entry is small, its content is in the body store, and callers get page, ETag and number as ever."""
    table = opened.store[opened.league.table]
    page = await _table(opened)
    located, local = await table.locate(), table.peek(opened.league.table.at().key)
    assert located is not None
    assert local is not None
    assert page.json() == {"points": 1, "pad": opened.source.pad}
    assert [(each.etag, each.number) for each in (located, local)] == [(page.etag, page.number)] * 2
    assert list(bodies.stored) == [located.pointer]
    assert len(await _stored(opened)) < 400 < OVER < len(bodies.stored[located.pointer])
    assert (opened.source.loads, bodies.reads) == (1, 1)


async def test_small_and_private_pages_stay_in_redis(opened: Opened, bodies: Bodies) -> None:
    """A page below the threshold has its content, and so has a user's page of any size."""
    opened.source.picks["7"] = token_hex(8000)
    assert await opened.store[opened.league.results].page() is not None
    mine = await opened.store[opened.league.picks].locate(user_id="7")
    assert mine is not None
    assert mine.json() == {"pick": opened.source.picks["7"]}
    assert bodies.stored == {}


async def test_lost_content_is_loaded_and_stored_again(opened: Opened, bodies: Bodies) -> None:
    """Without its object a page is loaded once, keeps its ETag and number, and its object is there again."""
    first = await _table(opened)
    before = dict(bodies.stored)
    bodies.stored.clear()
    again = await _table(opened)
    assert (again.json(), again.etag, again.number) == (first.json(), first.etag, first.number)
    assert bodies.stored == before
    await _table(opened)
    assert opened.source.loads == 2


async def test_damaged_content_is_never_served(opened: Opened, bodies: Bodies) -> None:
    """Content that its digest does not name is replaced by what the loader returns."""
    first = await _table(opened)
    before = dict(bodies.stored)
    bodies.stored = dict.fromkeys(before, b"something else")
    assert (await _table(opened)).json() == first.json()
    assert (bodies.stored, opened.source.loads) == (before, 2)


async def test_while_the_body_store_refuses_content_stays_in_redis(opened: Opened, bodies: Bodies) -> None:
    """A page whose content cannot be stored is a page like any other, and needs no body store."""
    bodies.accepts = bodies.returns = False
    page = await _table(opened)
    assert (await _table(opened)).json() == page.json()
    assert len(await _stored(opened)) > OVER
    assert (opened.source.loads, bodies.reads) == (1, 0)


async def test_a_body_store_that_cannot_be_read_fails_no_request(opened: Opened, bodies: Bodies) -> None:
    """Though it takes every object and returns none, callers get the page."""
    bodies.returns = False
    for _ in range(3):
        assert (await _table(opened)).json() == {"points": 1, "pad": opened.source.pad}


async def test_a_process_without_a_body_store_loads_what_it_finds_as_a_pointer(
    url: str, opened: Opened, bodies: Bodies
) -> None:
    """It stores the page with its content, which the others can use."""
    first = await _table(opened)
    async with connect_league(url, opened.league, opened.source) as other:
        page = await other[opened.league.table].page()
    assert page is not None
    assert (page.json(), page.etag) == (first.json(), first.etag)
    assert len(await _stored(opened)) > OVER
    assert (await _table(opened)).json() == first.json()


async def test_a_bump_stores_content_before_its_pointer(opened: Opened, bodies: Bodies) -> None:
    """While content is being stored Redis still has the page from before; then both change in one step."""
    first = await _table(opened)
    entry = await _stored(opened)
    seen: list[bytes] = []

    async def look() -> None:
        seen.append(await _stored(opened))

    bodies.before_put = look
    opened.source.points = 2
    await opened.site.bump(opened.league.table.at(), opened.league.results.at())
    page = await _table(opened)
    assert seen == [entry]
    assert page.json()["points"] == 2
    assert (page.etag == first.etag, page.number > first.number, len(bodies.stored)) == (False, True, 2)


async def test_a_pointer_is_a_digest_and_nothing_else(url: str, opened: Opened, bodies: Bodies) -> None:
    """An entry whose pointer is anything else, such as a path, is loaded in place of followed."""
    first = await _table(opened)
    (digest,) = bodies.stored
    entry = (await _stored(opened)).replace(digest.encode(), b"../" * 21 + b"x")
    await opened.store.call("SET", opened.league.table.at().key, entry, "KEEPTTL")
    async with connect_league(url, opened.league, opened.source) as other:
        asked = Bodies()
        other[opened.league.site].store_bodies_in(asked, over=OVER)
        page = await other[opened.league.table].page()
    assert page is not None
    assert page.json() == first.json()
    assert (list(asked.stored), opened.source.loads) == ([digest], 2)
