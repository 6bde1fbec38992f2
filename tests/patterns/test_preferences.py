"""Preferences: defaults, concurrent merges, lifetimes, and reads while Redis is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ephemera.embedded import Valkey, valkey
from ephemera.errors import ConnectionFailed, InvalidDeclaration, InvalidValue
from ephemera.keyspace import Catalogue, Store, connect, sliding
from ephemera.patterns.preferences import Preferences
from tests.patterns.session_fixtures import new_user


class Look(msgspec.Struct, rename="camel"):
    theme: str = "light"
    font_size: int = 14
    pinned: list[str] = []
    nested: dict[str, dict[str, list[int]]] = {}
    note: str | None = None


CATALOGUE = Catalogue("looks")
LOOK = Preferences(CATALOGUE, "prefs:{user_id}:{device}", Look)
STRICT = Preferences(CATALOGUE, "strict:{user_id}", Look, when_down="raise")
_WEEK = timedelta(days=7) // timedelta(milliseconds=1)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for settings."""
    async with connect(url, CATALOGUE) as opened:
        yield opened


async def test_unset_preferences_are_the_defaults(store: Store) -> None:
    """Without a value the defaults are returned, and again after a reset."""
    looks, user = store[LOOK], new_user()
    assert await looks.get(user_id=user, device="phone") == Look()
    await looks.merge({"theme": "dark"}, user_id=user, device="phone")
    assert await looks.reset(user_id=user, device="phone")
    assert not await looks.reset(user_id=user, device="phone")
    assert await looks.get(user_id=user, device="phone") == Look()


async def test_a_merge_leaves_the_other_fields(store: Store) -> None:
    """Fields that a merge does not name keep their values, whatever characters are in them."""
    looks, user = store[LOOK], new_user()
    odd = {'a}"': {"b,[": [1, 2]}, "\\": {}}
    await looks.merge({"nested": odd, "note": 'say "}{", \\'}, user_id=user, device="tablet")
    await looks.merge({"pinned": ["x", "]"]}, user_id=user, device="tablet")
    merged = await looks.merge({"theme": "dark", "note": None}, user_id=user, device="tablet")
    assert merged == Look(theme="dark", pinned=["x", "]"], nested=odd)
    assert await looks.get(user_id=user, device="tablet") == merged
    assert await looks.get(user_id=user, device="phone") == Look()


_JSON_TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ['"', "\\", '\\"', "{}", "],[", "\x00"]
)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.fixed_dictionaries({"note": _JSON_TEXT, "pinned": st.lists(_JSON_TEXT, max_size=3)}),
    then=st.fixed_dictionaries(
        {"theme": _JSON_TEXT},
        optional={
            "nested": st.dictionaries(_JSON_TEXT, st.dictionaries(_JSON_TEXT, st.lists(st.integers(-9, 9)))),
            "note": st.none(),
        },
    ),
)
def test_any_text_survives_a_merge(server: Valkey, first: dict[str, Any], then: dict[str, Any]) -> None:
    """Whatever quotes, braces and escapes are in the values, a merge is like that of two dictionaries."""

    async def merge() -> None:
        async with connect(server.url, CATALOGUE) as store:
            where = {"user_id": new_user(), "device": "d"}
            await store[LOOK].merge(first, **where)
            assert await store[LOOK].merge(then, **where) == Look(**{**first, **then})

    asyncio.run(merge())


async def test_concurrent_merges_all_survive(server: Valkey) -> None:
    """Of merges of different fields from several connections, none undoes another."""
    user = new_user()
    async with connect(server.url, CATALOGUE) as one, connect(server.url, CATALOGUE) as two:
        for number in range(100):
            changes: list[dict[str, Any]] = [
                {"theme": f"t{number}"},
                {"font_size": number},
                {"pinned": [f"p{number}"]},
                {"note": f"n{number}"},
            ]
            merges = [
                store[LOOK].merge(change, user_id=user, device="d")
                for store, change in zip((one, two, one, two), changes, strict=True)
            ]
            await asyncio.gather(*merges)
            expected = Look(f"t{number}", number, [f"p{number}"], {}, f"n{number}")
            assert await one[LOOK].get(user_id=user, device="d") == expected


@pytest.mark.standalone("it counts the commands of one server")
async def test_a_merge_is_one_round_trip(server: Valkey) -> None:
    """A merge and its lifetime are one command."""
    async with connect(server.url, CATALOGUE) as store:
        await store[LOOK].merge({"theme": "x"}, user_id="trip", device="d")
        before = await _calls(store)
        await store[LOOK].merge({"theme": "y"}, user_id="trip", device="d")
        assert await _calls(store) - before == 1


async def _calls(store: Store) -> int:
    info: bytes = await store.call("INFO", "commandstats")
    return sum(int(line.split(b"calls=")[1].split(b",")[0]) for line in info.split() if b"_evalsha:" in line)


async def test_every_write_restarts_the_lifetime(store: Store) -> None:
    """A merge and a replacement restart the seven days; a read does not."""
    looks, user = store[LOOK], new_user()
    key = f"prefs:{user}:d"
    for write in (
        looks.merge({"theme": "dark"}, user_id=user, device="d"),
        looks.replace(Look(theme="blue"), user_id=user, device="d"),
        looks.merge({"font_size": 9}, user_id=user, device="d"),
    ):
        await write
        assert _WEEK - 10_000 < await store.call("PTTL", key) <= _WEEK
        await store.call("PEXPIRE", key, 60_000)
        await looks.get(user_id=user, device="d")
        assert await store.call("PTTL", key) <= 60_000
    assert await looks.get(user_id=user, device="d") == Look(theme="blue", font_size=9)


async def test_a_value_of_another_shape_counts_as_missing(store: Store) -> None:
    """Values of an older Struct, foreign and damaged ones read as the defaults, and a merge replaces them."""
    looks, user = store[LOOK], new_user()
    key = f"prefs:{user}:d"
    await looks.merge({"theme": "dark"}, user_id=user, device="d")
    ours: bytes = await store.call("GET", key)
    head = ours[: ours.index(b"{")]
    for foreign in (b'{"theme":"x"}', b'["1abcdef",{"theme":"x"}]', ours[:-3], head + b'{"theme":5}]', b""):
        await store.call("SET", key, foreign, "EX", 60)
        assert await looks.get(user_id=user, device="d") == Look()
        assert await looks.merge({"font_size": 9}, user_id=user, device="d") == Look(font_size=9)
        assert await looks.get(user_id=user, device="d") == Look(font_size=9)


async def test_a_wrong_change_is_refused_before_it_is_sent(store: Store) -> None:
    """Unknown fields and values of another type are refused, and nothing is stored."""
    user = new_user()
    wrong: list[dict[str, Any]] = [{}, {"colour": 1}, {"theme": 1}, {"font_size": "9"}, {"fontSize": 9}]
    for changes in wrong:
        with pytest.raises(InvalidValue):
            await store[LOOK].merge(changes, user_id=user, device="d")
    assert await store.call("EXISTS", f"prefs:{user}:d") == 0


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_reads_return_the_defaults_in_an_outage(how: str) -> None:
    """Reads return the defaults, and writes raise."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            await store[LOOK].merge({"theme": "dark"}, user_id="u", device="d")
            getattr(server, how)()
            assert await store[LOOK].get(user_id="u", device="d") == Look()
            with pytest.raises(ConnectionFailed):
                await store[STRICT].get(user_id="u")
            with pytest.raises(ConnectionFailed):
                await store[LOOK].merge({"theme": "blue"}, user_id="u", device="d")
            server.resume()


class Demanding(msgspec.Struct):
    theme: str


@pytest.mark.parametrize(
    ("record", "options"),
    [(Demanding, {}), (Look, {"lifetime": sliding(days=7)}), (Look, {"when_down": "panic"})],
)
def test_invalid_declarations_are_refused(record: type[Any], options: dict[str, Any]) -> None:
    """Fields without defaults, sliding lifetimes and unknown policies are errors."""
    with pytest.raises(InvalidDeclaration):
        Preferences(Catalogue("x"), "p:{u}", record, **options)
