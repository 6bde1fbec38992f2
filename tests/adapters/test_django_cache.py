"""Django's cache on our connections: values and lifetimes, async without threads, what clear may delete."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync
from django.core.cache.backends.redis import RedisCache as DjangosRedisCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.safestring import SafeString

from ephemera import embedded
from ephemera.adapters.django import RedisCache
from ephemera.errors import ConnectionFailed, InvalidValue, LockLost, LockTimeout
from tests.adapters import django_settings as django_settings

Make = Callable[..., RedisCache]


@pytest.fixture(params=["server", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """A server and a cluster: all of it works on both."""
    found: str = request.getfixturevalue(request.param).url
    return found


@pytest.fixture
def make(url: str, key: str) -> Iterator[Make]:
    """Makes caches whose keys belong to this test alone."""

    def made(prefix: str = "", **params: Any) -> RedisCache:
        params = {"KEY_PREFIX": f"{key}{prefix}", **params}
        return RedisCache(url, {"OPTIONS": params.pop("OPTIONS", {}), **params})

    yield made
    made().disconnect()


@pytest.fixture
def cache(make: Make) -> RedisCache:
    """A cache with the default settings."""
    return make()


async def test_sync_and_async_methods_share_the_values(cache: RedisCache) -> None:
    """What one side stores the other reads, even several values at once."""
    await asyncio.to_thread(cache.set, "profile", {"name": "Ann", "age": 41})
    assert await cache.aget("profile") == {"name": "Ann", "age": 41}
    await cache.aset_many({"a": 1, "b": [2, None, True, "ü"]})
    assert await asyncio.to_thread(cache.get_many, ["a", "b", "c"]) == {"a": 1, "b": [2, None, True, "ü"]}
    assert await cache.aget_many(["a", "b", "c"]) == {"a": 1, "b": [2, None, True, "ü"]}
    assert await cache.adelete_many(["a", "b", "c"]) == 2
    assert (await cache.ahas_key("a"), await cache.ahas_key("profile")) == (False, True)
    assert (await cache.adelete("profile"), await cache.adelete("profile")) == (True, False)


async def test_async_methods_use_no_thread(cache: RedisCache) -> None:
    """They are awaited on the running loop: no thread is started for any number of them."""
    await cache.aset("counted", 0)
    before = threading.active_count()
    await asyncio.gather(*[cache.aincr("counted") for _ in range(200)])
    assert threading.active_count() <= before
    assert await cache.aget("counted") == 200


def test_async_methods_work_in_one_loop_after_another(cache: RedisCache) -> None:
    """Each loop has a client of its own, which its end closes; warnings about open ones are errors here."""
    for number in range(3):
        async_to_sync(cache.aset)("n", number)
        assert async_to_sync(cache.aget)("n") == number
    assert cache.get("n") == 2


async def test_sync_methods_work_in_a_coroutine(cache: RedisCache) -> None:
    """A template that an async view renders may use the cache; it blocks the loop, as with Django's own."""
    cache.set("fragment", "<p>")
    assert (cache.get("fragment"), cache.keys()) == ("<p>", ["fragment"])


def test_every_value_has_its_lifetime_at_once(cache: RedisCache) -> None:
    """The default, one of its own, none, or not stored at all; including by add, touch and set_many."""
    cache.set("default", 1)
    cache.set("own", 1, timeout=20.5)
    cache.set("forever", 1, timeout=None)
    cache.set("gone", 1, timeout=0)
    cache.set_many({"many": 1, "more": 1}, timeout=40)
    left = [cache.ttl(name) for name in ("default", "own", "forever", "gone", "many")]
    assert left[2:4] == [None, 0]
    assert 290 < (left[0] or 0) <= 300
    assert 15 < (left[1] or 0) <= 21
    assert 30 < (left[4] or 0) <= 40
    assert cache.touch("own", None)
    assert cache.touch("own", None)  # also a value that does not expire anyway
    assert cache.ttl("own") is None
    assert cache.touch("own", 10)
    assert 0 < (cache.pttl("own") or 0) <= 10_000
    assert not cache.touch("gone", 10)
    assert not cache.touch("gone", None)


def test_lifetimes_as_django_redis_sets_them(cache: RedisCache) -> None:
    """persist, expire, pexpire, expire_at and pexpire_at."""
    cache.set("x", 1)
    assert (cache.persist("x"), cache.persist("x"), cache.ttl("x")) == (True, False, None)
    assert cache.expire("x", 20)
    assert 0 < (cache.ttl("x") or 0) <= 20
    assert cache.pexpire("x", 60_000)
    assert 20 < (cache.ttl("x") or 0) <= 60
    assert cache.expire_at("x", datetime.now(UTC) + timedelta(hours=1))
    assert 3000 < (cache.ttl("x") or 0) <= 3600
    assert cache.pexpire_at("x", datetime.now(UTC) - timedelta(hours=1))
    assert cache.get("x") is None


def test_add_stores_only_what_is_not_there(cache: RedisCache) -> None:
    """It says whether it did; a lifetime of 0 asks, and stores nothing."""
    assert (cache.add("a", 1), cache.add("a", 2), cache.get("a")) == (True, False, 1)
    assert (cache.add("b", 1, timeout=0), cache.has_key("b")) == (True, False)
    assert not cache.add("a", 1, timeout=0)


def test_counting_is_atomic_and_keeps_the_lifetime(cache: RedisCache) -> None:
    """Threads that count lose nothing, and a missing number is a ValueError, not a number without an end."""
    cache.set("hits", 0, timeout=100)

    def count() -> None:
        for _ in range(50):
            cache.incr("hits")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache.get("hits"), cache.decr("hits", 50)) == (200, 150)
    assert 0 < (cache.ttl("hits") or 0) <= 100
    with pytest.raises(ValueError, match="not found"):
        cache.incr("missing")
    assert not cache.has_key("missing")


def test_numbers_beyond_64_bits_count_too(cache: RedisCache) -> None:
    """The server cannot add to them; what is not a number is an error, that of every backend of Django."""
    cache.set("big", 2**63 - 1, timeout=100)
    assert (cache.incr("big"), cache.incr("big", 2), cache.get("big")) == (2**63, 2**63 + 2, 2**63 + 2)
    assert 0 < (cache.ttl("big") or 0) <= 100
    cache.set("text", "a")
    for error in (TypeError, redis.ResponseError):
        with pytest.raises(error, match="not a number"):
            cache.incr("text")


def test_clear_stays_within_its_prefix(make: Make) -> None:
    """It deletes all versions of its own keys; other prefixes, even those that look like patterns, stay."""
    mine, others, pattern = make("a"), make("b"), make("?*[a]")
    for each in (mine, others, pattern):
        each.set("x", 1)
        each.set("x", 1, version=2)
    pattern.clear()
    assert (pattern.has_key("x"), mine.has_key("x"), others.has_key("x")) == (False, True, True)
    mine.clear()
    assert (mine.has_key("x"), mine.has_key("x", version=2), others.has_key("x")) == (False, False, True)
    async_to_sync(others.aclear)()
    assert others.keys() == []


def test_keys_and_delete_pattern(cache: RedisCache) -> None:
    """They see the keys of one version, and say how many they deleted."""
    cache.set_many({"user:1": 1, "user:2": 2, "team:1": 3})
    cache.set("user:9", 9, version=2)
    assert sorted(cache.iter_keys("user:*")) == ["user:1", "user:2"]
    assert (cache.delete_pattern("user:*"), cache.delete_pattern("user:*")) == (2, 0)
    assert (cache.keys(), cache.keys(version=2)) == (["team:1"], ["user:9"])
    assert async_to_sync(cache.adelete_pattern)("user:*", version=2) == 1


def test_a_key_function_of_your_own(make: Make) -> None:
    """Keys are listed as they were given, and cleared, where it puts them behind a prefix."""
    cache = make(KEY_FUNCTION=lambda key, prefix, version: f"{prefix}/v{version}/{key}")
    cache.set_many({"a:1": 1, "b": 2})
    assert sorted(cache.keys()) == ["a:1", "b"]
    cache.clear()
    assert cache.keys() == []


def test_a_key_function_that_hashes_cannot_be_cleared(make: Make) -> None:
    """The error says so, and nothing is deleted."""
    hashed = make(KEY_FUNCTION=lambda key, prefix, version: f"{prefix}{hash((key, version))}")
    hashed.set("x", 1)
    with pytest.raises(ImproperlyConfigured, match="KEY_FUNCTION"):
        hashed.clear()
    assert hashed.get("x") == 1


UNFAITHFUL = [(1, 2), {1: "a"}, {1, 2}, b"bytes", {"a": [(1,)]}, float("nan"), datetime.now(UTC)]


@pytest.mark.parametrize("value", UNFAITHFUL, ids=range(len(UNFAITHFUL)))
def test_json_refuses_what_it_would_change(cache: RedisCache, value: Any) -> None:
    """A tuple would come back as a list: the error names the other serializer, and nothing is stored."""
    for store in (lambda: cache.set("x", value), lambda: cache.set_many({"x": value})):
        with pytest.raises(InvalidValue, match="pickle"):
            store()
    assert not cache.has_key("x")


@pytest.mark.parametrize("value", [None, True, -7, 2**80, 1.5, "ü\ud800", [], {"a": [1, None, {"b": "c"}]}])
def test_json_returns_what_was_stored(cache: RedisCache, value: Any) -> None:
    """Equal and of the same type; numbers of any size, and text that is no valid Unicode."""
    cache.set("x", value)
    found = cache.get("x", default="nothing")
    assert (found, type(found)) == (value, type(value))


def test_a_template_fragment_is_stored_as_text(cache: RedisCache) -> None:
    """`{% cache %}` stores text that is marked as safe; the mark alone is lost, so it is escaped if shown."""
    cache.set("fragment", SafeString("<p>"))
    found = cache.get("fragment")
    assert (found, type(found)) == ("<p>", str)


def test_what_another_program_wrote_is_a_miss(make: Make) -> None:
    """Nothing from Redis is unpickled unless the settings say so, and what is not JSON is not there."""
    make(OPTIONS={"serializer": "pickle"}).set("x", {1, 2})
    cache = make()
    assert (cache.get("x"), cache.get("x", "default"), cache.get_many(["x"])) == (None, "default", {})


@pytest.mark.standalone("Django's own backend has no client for a cluster")
@pytest.mark.parametrize("ours_writes", [True, False])
def test_pickled_values_are_those_of_djangos_backend(
    server: Any, request: pytest.FixtureRequest, ours_writes: bool
) -> None:
    """During a deployment both backends read each other's values and share their keys."""
    params = {"KEY_PREFIX": request.node.name}
    ours = RedisCache(server.url, {**params, "OPTIONS": {"serializer": "pickle"}})
    djangos: Any = DjangosRedisCache(server.url, params)
    writer, reader = (ours, djangos) if ours_writes else (djangos, ours)
    writer.set_many({"set": {1, 2}, "number": 41})
    assert (reader.get("set"), reader.incr("number")) == ({1, 2}, 42)
    djangos._cache.get_client().connection_pool.disconnect()
    ours.disconnect()


def test_a_serializer_of_your_own(make: Make) -> None:
    """By its dotted path, as a class or as an object with dumps and loads; anything else is refused."""
    cache = make(OPTIONS={"serializer": "pickle"})
    for chosen in ("tests.adapters.test_django_cache.Reversed", Reversed, Reversed()):
        other = make(OPTIONS={"serializer": chosen})
        other.set("x", "abc")
        assert other.get("x") == "abc"
    with pytest.raises(pickle.UnpicklingError):
        cache.get("x")
    with pytest.raises(ImproperlyConfigured, match="dumps and loads"):
        make(OPTIONS={"serializer": object()})


class Reversed:
    """A serializer for text."""

    def dumps(self, value: str) -> bytes:
        """Store it backwards."""
        return value[::-1].encode()

    def loads(self, stored: bytes) -> str:
        """Read it backwards."""
        return stored.decode()[::-1]


def test_a_lock_has_one_holder(cache: RedisCache) -> None:
    """Another one waits or gives up; a release by its holder alone frees it."""
    with cache.lock("report", timeout=60) as held:
        assert held.owned()
        other = cache.lock("report", sleep=0.01, blocking_timeout=0.05)
        assert not other.acquire(blocking=False)
        with pytest.raises(LockTimeout), other:
            pass
        with pytest.raises(LockLost):
            other.release()
        held.extend(120)
        assert other.locked()
        assert 60 < (cache.ttl("report") or 0) <= 120
    assert not cache.has_key("report")


async def test_a_lock_in_async_code(cache: RedisCache) -> None:
    """The same with `async with`; tasks take turns."""
    order: list[str] = []

    async def work(name: str) -> None:
        async with cache.lock("turn", timeout=60, sleep=0.01) as held:
            order.append(f"{name} in")
            await held.aextend(60)
            order.append(f"{name} out")

    await asyncio.gather(work("a"), work("b"))
    assert order in (["a in", "a out", "b in", "b out"], ["b in", "b out", "a in", "a out"])
    lost = cache.lock("turn", timeout=60)
    assert await lost.aacquire()
    await cache.adelete("turn")
    with pytest.raises(LockLost):
        await lost.arelease()


def test_an_outage_raises_or_misses() -> None:
    """By default it raises; with when_down="miss" the cache is empty until then, but nothing is counted."""
    with embedded.valkey() as server:
        url = server.url
        strict, lenient = (RedisCache(url, {"OPTIONS": {"when_down": how}}) for how in ("raise", "miss"))
        lenient.set("x", 1)
    with pytest.raises(ConnectionFailed):
        strict.get("x")
    with pytest.raises(ConnectionFailed):
        async_to_sync(strict.aget)("x")
    assert (lenient.get("x", "default"), async_to_sync(lenient.aget)("x", "default")) == (
        "default",
        "default",
    )
    assert (lenient.get_many(["x"]), lenient.has_key("x"), lenient.add("x", 1)) == ({}, False, False)
    lenient.set("x", 2)
    lenient.clear()
    assert (lenient.keys(), lenient.delete_pattern("*"), lenient.delete("x")) == ([], 0, False)
    with pytest.raises(ConnectionFailed):
        lenient.incr("x")
    with pytest.raises(ConnectionFailed):
        lenient.lock("x").acquire()
    lenient.disconnect()


def test_a_cache_that_was_disconnected_connects_again(cache: RedisCache) -> None:
    """So it may be closed before its server is, and used later."""
    cache.set("x", 1)
    cache.disconnect()
    cache.disconnect()
    assert cache.get("x") == 1


def test_a_forked_child_connects_by_itself(cache: RedisCache) -> None:
    """The child reads and writes on its own connections, and the parent's go on."""
    cache.set("x", "parent")
    child = os.fork()
    if not child:
        try:
            cache.set("y", cache.get("x") + "'s child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (cache.get("x"), cache.get("y")) == ("parent", "parent's child")


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        (["redis://a", "redis://b"], {}, "one URL"),
        ("", {}, "one URL"),
        ("redis://localhost", {"db": 1}, "has no db.*URL of LOCATION"),
        ("redis://localhost", {"when_down": "ignore"}, "when_down"),
    ],
)
def test_wrong_settings_are_refused(location: Any, options: dict[str, Any], message: str) -> None:
    """The error says which setting, and what it should be."""
    with pytest.raises(ImproperlyConfigured, match=message):
        RedisCache(location, {"OPTIONS": options})
