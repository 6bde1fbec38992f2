"""The caches for cachelib, Flask-Caching and dogpile.cache: serializers, prefixes, outages, single flight."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from cachelib import RedisCache
from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from flask import Flask
from flask_caching import Cache

from ephemera import embedded
from ephemera.adapters.cachelib import EphemeraCache
from ephemera.adapters.dogpile import EphemeraBackend
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed, InvalidDeclaration, InvalidValue, LockAlreadyHeld

HOSTILE = b"!" + pickle.dumps({"a": 1})
UNFAITHFUL = [(1, 2), {1: "a"}, b"bytes", {"a": {"b": (1,)}}, float("nan"), {1, 2}, object()]


@pytest.fixture
def prefix() -> str:
    """What the keys of a test begin with."""
    return f"{uuid4().hex}:"


@pytest.fixture
def url(server: Any) -> str:
    """The URL of the server."""
    return str(server.url)


@pytest.fixture
def cache(url: str, prefix: str) -> Iterator[EphemeraCache]:
    """A cache of cachelib with JSON."""
    made = EphemeraCache(url, key_prefix=prefix)
    yield made
    made.close()


@pytest.mark.parametrize(
    "value", [None, True, 0, -7, 2**80, 1.5, "ü\ud800", [], {"a": [1, None, {"b": "c"}]}]
)
def test_json_returns_what_was_stored(cache: EphemeraCache, value: Any) -> None:
    """Equal and of the same type; numbers of any size, and text that is no valid Unicode."""
    assert cache.set("a", value)
    found = cache.get("a")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("value", UNFAITHFUL, ids=range(len(UNFAITHFUL)))
def test_json_refuses_what_it_would_change(cache: EphemeraCache, value: Any) -> None:
    """A tuple would come back as a list: the error names the other serializer, and nothing is stored."""
    with pytest.raises(InvalidValue, match="pickle"):
        cache.set("a", value)
    assert not cache.has("a")


@pytest.mark.parametrize("stored", [HOSTILE, pickle.dumps(os.getcwd), b"[" * 100_000, b"\xff", b"{"])
def test_json_never_unpickles(cache: EphemeraCache, stored: bytes) -> None:
    """What another program wrote is a miss, whatever it is."""
    cache._server.call("SET", cache._key("a"), stored)
    assert cache.get("a") is None
    assert cache.get_many("a", "b") == [None, None]


@pytest.mark.standalone("the other cache is for one server")
def test_pickle_is_the_format_of_cachelib(server: Valkey, url: str, prefix: str) -> None:
    """By name only; both read each other's values."""
    mine = EphemeraCache(url, key_prefix=prefix, serializer="pickle")
    theirs = RedisCache("127.0.0.1", server.port, server.password, key_prefix=prefix)
    mine.set("a", (1, 2))
    theirs.set("b", {3: b"c"})
    assert (theirs.get("a"), mine.get("b")) == ((1, 2), {3: b"c"})
    mine.close()


def test_writes_set_their_lifetime(cache: EphemeraCache) -> None:
    """By the default, a number or a timedelta, including by `add` and `set_many`; 0 is forever."""
    cache.set("default", 1)
    cache.add("number", 1, 60)
    cache.set_many({"delta": 1}, timedelta(minutes=2))
    cache.set("forever", 1, 0)
    seconds = [
        cache._server.call("TTL", cache._key(name)) for name in ("default", "number", "delta", "forever")
    ]
    assert 290 < seconds[0] <= 300
    assert 50 < seconds[1] <= 60
    assert 110 < seconds[2] <= 120
    assert seconds[3] == -1


def test_clear_removes_its_prefix_alone(cache: EphemeraCache, url: str, prefix: str) -> None:
    """Characters that SCAN would interpret are taken literally."""
    odd = EphemeraCache(url, key_prefix=lambda: f"{prefix}[*]")
    odd.set("a", 1)
    cache.set("[x]a", 2)
    assert odd.clear()
    assert (odd.get("a"), cache.get("[x]a")) == (None, 2)
    odd.close()


def test_threads_count_without_losing_any(cache: EphemeraCache) -> None:
    """`inc` is one step on the server."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: cache.inc("n"), range(200)))
    assert cache.get("n") == 200


def test_a_forked_child_connects_by_itself(cache: EphemeraCache, url: str, prefix: str) -> None:
    """An application is loaded before its server forks: each process uses connections of its own."""
    cached = region(url, lock_prefix=f"{prefix}lock:")
    cache.set("n", 0)
    assert cached.get_or_create(f"{prefix}a", lambda: "parent's") == "parent's"
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                seen = {cache.inc("n") for _ in range(50)}
                made = cached.get_or_create(f"{prefix}{number}", lambda: cached.get(f"{prefix}a"))
                code = 0 if len(seen) == 50 and made == "parent's" else 1
            finally:
                os._exit(code)
        children.append(child)
    for _ in range(50):
        cache.inc("n")
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert cache.get("n") == 250
    assert [cached.get(f"{prefix}{number}") for number in range(4)] == ["parent's"] * 4


def test_an_outage_is_an_error() -> None:
    """At once; `check_connection` notices it when the cache is made."""
    with embedded.valkey() as server:
        cache = EphemeraCache(server.url, check_connection=True)
        assert cache.set("a", 1)
        server.kill()
        with pytest.raises(ConnectionFailed):
            cache.get("a")
        with pytest.raises(RuntimeError, match="could not connect"):
            EphemeraCache(server.url, check_connection=True)
        cache.close()


def test_flask_caching_takes_it_by_name(url: str, prefix: str) -> None:
    """A cached view runs once; the settings are those of its own Redis backend."""
    app, calls = Flask(__name__), []
    app.config.update(
        CACHE_TYPE="ephemera.adapters.flask_caching.EphemeraCache",
        CACHE_REDIS_URL=url,
        CACHE_KEY_PREFIX=prefix,
    )
    caching = Cache(app)

    @app.get("/<name>")
    @caching.cached(timeout=60)
    def page(name: str) -> dict[str, str]:
        calls.append(name)
        return {"name": name}

    client = app.test_client()
    assert [client.get("/tea").json for _ in range(3)] == [{"name": "tea"}] * 3
    assert calls == ["tea"]
    with app.app_context():
        caching.unlink("view//tea")
    assert client.get("/tea").json == {"name": "tea"}
    assert calls == ["tea", "tea"]


def test_an_async_view_may_use_it(url: str, prefix: str) -> None:
    """On the thread of its event loop, which it blocks for a round trip as any client would."""
    cache = EphemeraCache(url, key_prefix=prefix)

    async def view() -> Any:
        cache.set("a", 1)
        return cache.get("a")

    assert asyncio.run(view()) == 1
    cache.close()


def region(url: str, **arguments: Any) -> Any:
    """A region whose values are fresh for a minute."""
    return make_region().configure("ephemera", expiration_time=60, arguments={"url": url, **arguments})


def test_one_creator_for_many_threads_of_several_regions(url: str, prefix: str) -> None:
    """Regions stand for processes: they share the lock on the server alone."""
    regions = [region(url, lock_prefix=f"{prefix}lock:") for _ in range(4)]
    created: list[int] = []
    started, release = threading.Event(), threading.Event()

    def create() -> str:
        created.append(1)
        started.set()
        release.wait(30)
        return "made"

    with ThreadPoolExecutor(12) as threads:
        asked = [
            threads.submit(each.get_or_create, f"{prefix}a", create) for each in regions for _ in range(3)
        ]
        assert started.wait(30)
        release.set()
        assert [each.result(60) for each in asked] == ["made"] * 12
    assert created == [1]


def test_a_lock_outlives_no_process(url: str, prefix: str) -> None:
    """A creator that is killed leaves a lock that ends with its lease: another creates the value."""
    child = os.fork()
    if child == 0:
        mutex = EphemeraBackend({"url": url, "lock_prefix": prefix, "lock_timeout": 2}).get_mutex("a")
        os._exit(0 if mutex is not None and mutex.acquire() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    mutex = EphemeraBackend({"url": url, "lock_prefix": prefix, "lock_timeout": 2}).get_mutex("a")
    assert mutex is not None
    assert mutex.acquire()  # waits for the rest of the lease
    mutex.release()
    assert not mutex.locked()


def test_a_thread_does_not_wait_for_itself(url: str, prefix: str) -> None:
    """Asking again for a lock that the thread has is False without waiting, and else an error."""
    backend = EphemeraBackend({"url": url, "lock_prefix": prefix})
    one, other = backend.get_mutex("a"), backend.get_mutex("a")
    assert one is not None
    assert other is not None
    assert one.acquire()
    assert not other.acquire(False)
    with pytest.raises(LockAlreadyHeld):
        other.acquire()
    one.release()
    with pytest.raises(RuntimeError, match="not acquired"):
        one.release()


def test_dogpile_stores_json_or_pickle(url: str, prefix: str) -> None:
    """JSON refuses what it would change and takes nothing else for a value; pickle is chosen by name."""
    json, pickled = region(url), region(url, serializer="pickle", redis_expiration_time=60)
    with pytest.raises(InvalidValue):
        json.set(f"{prefix}a", (1, 2))
    pickled.set(f"{prefix}a", (1, 2))
    assert pickled.get(f"{prefix}a") == (1, 2)
    assert json.get(f"{prefix}a") is NO_VALUE
    assert pickled.backend._server.call("TTL", f"{prefix}a") > 50
    json.set_multi({f"{prefix}b": 1, f"{prefix}c": [2]})
    assert json.get_multi([f"{prefix}b", f"{prefix}c", f"{prefix}d"]) == [1, [2], NO_VALUE]
    json.delete_multi([f"{prefix}b", f"{prefix}c"])
    assert json.get(f"{prefix}b") is NO_VALUE


def test_dogpile_says_what_it_cannot_use(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown serializer is an error; an unknown argument is logged, since regions share arguments."""
    with pytest.raises(InvalidDeclaration, match="json"):
        EphemeraBackend({"serializer": "yaml"})
    EphemeraBackend({"host": "::1", "socket_timeout": 1, "thread_local_lock": False})
    assert "socket_timeout" in caplog.text
    assert "thread_local_lock" not in caplog.text
    assert EphemeraBackend({"distributed_lock": False}).get_mutex("a") is None
