"""Bad input to declarations and accessors: a clear error that names the key, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, InvalidLifetime, InvalidUrl, InvalidValue, WrongFields
from ephemera.keyspace import Catalogue, Store, connect, fixed, permanent, until
from tests import least_privilege


class Card(msgspec.Struct):
    """Something to store."""

    name: str
    number: int = 0


catalogue = Catalogue("bad-input")
VALUE = catalogue.value("bad:value:{id}", Card, lifetime=fixed(hours=1), purpose="x")
HASH = catalogue.hash("bad:hash:{id}", Card, lifetime=fixed(hours=1), purpose="x")
COUNTER = catalogue.counter("bad:counter:{id}", lifetime=fixed(hours=1), purpose="x")
RANKED = catalogue.sorted_set("bad:ranked:{id}", str, lifetime=fixed(hours=1), purpose="x")
FLAG = catalogue.flag("bad:flag:{id}", lifetime=fixed(hours=1), purpose="x")


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    """A store with the keyspaces above."""
    async with connect(server.url, catalogue) as opened:
        yield opened


BATCHES: dict[str, Callable[[Any], Any]] = {
    "ids for fields": lambda store: store[VALUE].get_many(["a", "b"]),
    "nothing": lambda store: store[VALUE].get_many(None),
    "pairs swapped": lambda store: store[VALUE].put_many([(Card("a"), {"id": 1})]),
    "no pairs": lambda store: store[HASH].put_many([Card("a")]),
    "triples": lambda store: store[HASH].put_many([({"id": 1}, Card("a"), 3)]),
    "hashes by id": lambda store: store[HASH].get_many(["a"]),
    "counters by id": lambda store: store[COUNTER].get_many(["a"]),
    "additions by id": lambda store: store[COUNTER].add_many([("a", 1)]),
    "flags by id": lambda store: store[FLAG].are_set(["a"]),
    "deletion by id": lambda store: store[FLAG].delete_many(["a"]),
}


@pytest.mark.parametrize("batch", BATCHES)
async def test_a_malformed_batch_is_explained(store: Store, batch: str) -> None:
    """The error names the pattern and shows the right form."""
    with pytest.raises(
        WrongFields, match=r"'bad:\w+:\{id\}' takes id; given a batch of another form than \[.*'id'"
    ):
        await BATCHES[batch](store)


@pytest.mark.parametrize("by", ["1", 1.5, True, 2**63, -(2**63) - 1, None])
async def test_a_counter_takes_whole_numbers_of_64_bits(store: Store, key: str, by: Any) -> None:
    """A number that the server could not add is refused before it is sent."""
    with pytest.raises(InvalidValue, match=r"'bad:counter:{id}' holds whole numbers of 64 bits"):
        await store[COUNTER].add(by, id=key)
    with pytest.raises(InvalidValue):
        await store[COUNTER].add_many([({"id": key}, by)])
    assert not await store[COUNTER].exists(id=key)


@pytest.mark.parametrize("score", [math.nan, "1", None, True])
async def test_a_score_is_a_number(store: Store, key: str, score: Any) -> None:
    """A score that is not a number is refused before it is sent."""
    with pytest.raises(InvalidValue, match=r"'bad:ranked:{id}' holds members with numbers as scores"):
        await store[RANKED].add({"ann": score}, id=key)
    with pytest.raises(InvalidValue):
        await store[RANKED].increment("ann", score, id=key)
    ranked: Any = store[RANKED]
    with pytest.raises(InvalidValue, match="as in add"):
        await ranked.add(["ann"], id=key)
    assert not await store[RANKED].exists(id=key)


@pytest.mark.parametrize(
    "about",
    [
        {"purpose": 5},
        {"owner": 5},
        {"saves": ("a", "b")},
        {"if_lost": None},
        {"invalidated_by": (1, 2)},
        {"invalidated_by": "logout"},
        {"sensitive": "no"},
        {"max_key_length": "9"},
        {"max_key_length": 0},
        {"compress_over": "9"},
    ],
    ids=str,
)
def test_options_of_the_wrong_type_are_refused(about: dict[str, Any]) -> None:
    """An option of the wrong type fails when it is declared."""
    options = {"lifetime": fixed(hours=1), "purpose": "x", **about}
    with pytest.raises(InvalidDeclaration, match=r"'form:{id}': "):
        Catalogue("form").value("form:{id}", Card, **options)


@pytest.mark.parametrize("length", ["9", 0, 1.5, True])
def test_a_length_is_a_positive_number(length: Any) -> None:
    """A stream or list whose maximum length is not a positive number is refused."""
    for declare in (Catalogue("form").list, Catalogue("form").stream):
        with pytest.raises(InvalidDeclaration, match="max_length"):
            declare("form:{id}", Card, max_length=length, lifetime=fixed(hours=1), purpose="x")


def test_names_patterns_and_reasons_are_strings() -> None:
    """A catalogue's name goes into metrics and files; a pattern and a reason are read by people."""
    number: Any = 5
    name: Any
    for name in (number, None, "", "two words", "line\n", "x" * 65):
        with pytest.raises(InvalidDeclaration, match="cannot be the name of a catalogue"):
            Catalogue(name)
    with pytest.raises(InvalidDeclaration, match="a pattern is a string"):
        Catalogue("form").flag(number, lifetime=fixed(hours=1), purpose="x")
    with pytest.raises(InvalidLifetime, match="say why"):
        permanent(reason=number)
    with pytest.raises(InvalidLifetime, match="give a function"):
        until(number)


async def test_a_store_opens_on_a_url_and_catalogues(server: Valkey) -> None:
    """Anything else is refused with an error that names it."""
    wrong: Any
    for wrong in (None, 5, b"redis://x"):
        with pytest.raises(InvalidUrl, match="a URL is a text such as redis://"):
            async with connect(wrong):
                pytest.fail("it must not open")
    for wrong in ("redis://:secret@second", [Catalogue("x")]):
        with pytest.raises(TypeError, match=f"takes catalogues, not {type(wrong).__name__}$"):
            async with connect(server.url, wrong):
                pytest.fail("it must not open")


async def test_a_store_reads_from_masters(server: Valkey) -> None:
    """A replica may not know yet what was revoked, so a store refuses the option."""
    replicas = "redis+cluster://127.0.0.1:7000?read_from=replicas"
    for url, queue_url in ((replicas, None), (server.url, replicas)):
        with pytest.raises(InvalidUrl, match=r"read_from=replicas is not for a store: .* leave it out"):
            async with connect(url, queue_url=queue_url):
                pytest.fail("it must not open")


async def test_connect_needs_async_with(server: Valkey) -> None:
    """Used as a store, or awaited, it raises an error that shows how to connect."""
    advice = r"nothing is connected yet; use: async with connect\(...\) as store"
    opening: Any = least_privilege._connect(server.url, catalogue)  # the package's own
    with pytest.raises(TypeError, match=f"connect.* is not a store: {advice}"):
        opening[VALUE]
    with pytest.raises(TypeError, match=f"connect.* cannot be awaited: {advice}"):
        await opening
    with pytest.raises(AttributeError, match=f"has no 'call': {advice}"):
        await opening.call("PING")
    async with opening as store:
        assert await store[VALUE].get(id="missing") is None


async def test_a_store_shows_where_it_is_and_no_secret(server: Valkey) -> None:
    """Its repr has its catalogues, its servers and whether they are up, but no password."""
    async with connect(server.url, catalogue) as store:
        cache = repr(store.client())
        assert server.url.rpartition("@")[2] in cache
        assert repr(store) == f"<Store of bad-input on {cache}>"
    assert repr(store).endswith(" down>>")
    url = "redis://ann:canary@127.0.0.1:1"
    async with connect(server.url, queue_url=url, required=False) as store:
        shown = repr(store)
    assert shown == f"<Store of no catalogue on {cache}, queue on <NodeClient 127.0.0.1:1 down>>"


async def test_a_store_takes_declarations_only(store: Store) -> None:
    """A string or a list is refused; the error says what to use."""
    wrong: Any
    for wrong in ("bad:value:{id}", [VALUE], None):
        with pytest.raises(TypeError, match="takes a declared keyspace or pattern"):
            store[wrong]
