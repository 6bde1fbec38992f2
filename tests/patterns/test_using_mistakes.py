"""Mistakes in the use of patterns are reported at once, with what was given and what to give instead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from functools import partial, wraps
from typing import Any

import msgspec
import pytest

from ephemera import keyspace
from ephemera.errors import InvalidClaim, InvalidDeclaration, InvalidValue
from ephemera.keyspace import Catalogue, Store, sliding
from ephemera.operations.documentation import describe
from ephemera.patterns.cache import Cache
from ephemera.patterns.events import Delivery, Events
from ephemera.patterns.rate_limits import RateLimits, fixed_window, sliding_window
from ephemera.patterns.sessions import Sessions

MINUTE = timedelta(minutes=1)


class Article(msgspec.Struct):
    """Something to cache, and to tell of."""

    title: str
    words: int


class Session(msgspec.Struct):
    """Who is signed in."""

    user_id: str


catalogue = Catalogue("using-mistakes")
CACHE = Cache(catalogue, "mistaken:article:{slug}", Article, fresh=MINUTE, purpose="x")
TAGGED = Cache(
    catalogue,
    "mistaken:tagged:{slug}",
    Article,
    fresh=MINUTE,
    tags=lambda article, **_: [article.words],
    purpose="x",
)
API = fixed_window("api", {"free": 5, "pro": 9}, per=MINUTE)
SEARCH = sliding_window("search", 1, per=MINUTE)
LIMITS = RateLimits(catalogue, "mistaken", API, SEARCH)
SESSIONS = Sessions(
    catalogue, "mistaken:session:{session_id}", Session, user="user_id", lifetime=sliding(hours=1)
)
EVENTS = Events(catalogue, "mistaken:events:{name}", Article, purpose="x")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store of the patterns above, on each sort of server."""
    async with keyspace.connect(url, catalogue) as opened:
        yield opened


async def test_a_cache_names_the_type_it_was_declared_with(store: Store, key: str) -> None:
    """A value of another type is refused by its own name and the declared one, by hand and by a loader."""

    async def load(slug: str) -> Any:
        return {"title": slug}

    says = r"'mistaken:article:\{slug\}' holds Article; given dict$"
    with pytest.raises(InvalidValue, match=says):
        await store[CACHE].put({"title": "x"}, slug=key)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=says):
        await store[CACHE].get_or_load(load, slug=key)
    with pytest.raises(InvalidValue, match=r"holds tags of str; given int$"):
        await store[TAGGED].put(Article("x", 3), slug=key)


async def test_a_cache_shows_its_type_and_reads_what_was_stored_before(store: Store, key: str) -> None:
    """The catalogue shows the declared type and its fields; entries are stored in an envelope."""
    (entry,) = (each for each in describe(catalogue) if each.pattern == CACHE.keyspace.pattern)
    assert (entry.holds, [field.name for field in entry.fields]) == ("Article", ["title", "words"])
    await store[CACHE].put(Article("x", 3), slug=key)
    assert (await store.call("GET", CACHE.keyspace.key(slug=key)))[:6] == b'["1",['


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (API["free"], r"api: <'api' at 5> is not a claim.*use rule.on\(subject\)"),
        (SEARCH, r"search: <rule 'search': .* is not a claim.*use rule.on\(subject\)"),
        ("api", r"check: 'api' is not a claim.*use rule.on\(subject\)"),
    ],
    ids=["tier", "rule", "name"],
)
async def test_a_check_without_a_subject_says_what_is_missing(
    store: Store, key: str, claim: Any, says: str
) -> None:
    """A rule, a tier or a name is not a claim: alone, at another cost, among others, with cached denials."""
    limits, claims = store[LIMITS], (SEARCH.on(key), claim)
    for _ in range(2):
        for wrong in (
            limits.check(claim),
            limits.check(claim, cost=2),
            limits.check(API["pro"].on(key), claim),
            limits.peek(claim),
            limits.reset(*claims),
        ):
            with pytest.raises(InvalidClaim, match=says):
                await wrong
        while (await limits.check(SEARCH.on(key))).source != "memory":
            pass  # until a denial is cached, which is looked up first


async def test_none_is_not_a_token(store: Store) -> None:
    """None instead of a token is an error that says what a token is, for every operation."""
    sessions: Any = store[SESSIONS]
    says = r"'mistaken:session:\{session_id\}' holds sessions, found by tokens of type str; given NoneType$"
    for asked in (sessions.get, sessions.end, sessions.rotate):
        with pytest.raises(InvalidValue, match=says):
            await asked(None)
    with pytest.raises(InvalidValue, match=says):
        sessions.reader.send(None)
    assert await sessions.get("") is None


async def _handle(event: Article, delivery: Delivery) -> None:
    """Nothing."""


async def _more(prefix: str, event: Article, delivery: Delivery) -> None:
    """Nothing."""


def _plain(event: Article, delivery: Delivery) -> None:
    """Nothing, and nothing to await."""


def _giving(event: Article, delivery: Delivery) -> Awaitable[None]:
    return _handle(event, delivery)


@wraps(_handle)
def _wrapping(*args: Any) -> Any:
    return _handle(*args)


class _Handler:
    async def __call__(self, event: Article, delivery: Delivery) -> None:
        """Nothing."""

    async def method(self, event: Article, delivery: Delivery) -> None:
        """Nothing."""

    def plain(self, event: Article, delivery: Delivery) -> None:
        """Nothing, and nothing to await."""


class _Plain:
    def __call__(self, event: Article, delivery: Delivery) -> None:
        """Nothing, and nothing to await."""


HANDLERS: dict[str, Any] = {
    "function": _handle,
    "partial": partial(_more, "a"),
    "object": _Handler(),
    "method": _Handler().method,
    "lambda": lambda event, delivery: _handle(event, delivery),
    "annotated": _giving,
    "wrapper": _wrapping,
}
NO_HANDLERS: dict[str, tuple[Any, str]] = {
    "plain": (_plain, "_plain is not async"),
    "plain method": (_Handler().plain, "_Handler.plain is not async"),
    "plain object": (_Plain(), "_Plain is not async"),
    "plain partial": (partial(_plain), "_plain is not async"),
    "too many parameters": (_more, "_more cannot be called with event, delivery"),
    "too few": (partial(_handle, Article("x", 3)), "_handle cannot be called with event, delivery"),
    "called already": (None, "None cannot be called"),
}


@pytest.mark.parametrize("sort", HANDLERS)
async def test_what_can_be_awaited_is_a_handler(store: Store, key: str, sort: str) -> None:
    """Every sort of callable that gives something to await handles its event."""
    async with store[EVENTS].consume("g", HANDLERS[sort], name=key) as consumer:
        await store[EVENTS].publish(Article("x", 3), name=key)
        while not consumer.counts.acked:
            await store.call("PING")
    assert (consumer.counts.handled, consumer.counts.failed) == (1, 0)


@pytest.mark.parametrize("sort", NO_HANDLERS)
async def test_a_handler_that_must_fail_is_refused_at_once(store: Store, key: str, sort: str) -> None:
    """What no event could be given to is refused where it is given, and no event becomes a dead letter."""
    handler, says = NO_HANDLERS[sort]
    with pytest.raises(InvalidDeclaration, match=says) as caught:
        store[EVENTS].consume("g", handler, name=key)
    assert str(caught.value).startswith("'mistaken:events:{name}': ")
    assert str(caught.value).endswith("; write it as: async def handle(event, delivery)")
    with pytest.raises(InvalidDeclaration, match=r"grace=5 is not a duration; use timedelta\(seconds=5\)"):
        store[EVENTS].consume("g", _handle, grace=5, name=key)  # type: ignore[arg-type]


def test_a_loader_that_must_fail_is_refused_where_it_is_decorated() -> None:
    """A loader is async, and takes the fields of the pattern by their names."""

    def plain(slug: str) -> Article:
        return Article(slug, 0)

    async def renamed(article: str) -> Article:
        return Article(article, 0)

    says = r"; write it as: async def load\(slug\)"
    with pytest.raises(InvalidDeclaration, match="plain is not async.*" + says):
        CACHE.cached(plain)  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration, match="renamed cannot be called with slug" + says):
        CACHE.cached(renamed)
