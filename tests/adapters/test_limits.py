"""The storages of limits: shared keys, faults, forks, event loops, and the libraries that use them by URL."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
import slowapi
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from flask import Flask
from flask_limiter import Limiter
from limits import RateLimitItemPerHour, RateLimitItemPerMinute
from limits.aio import strategies as aio_strategies
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from slowapi.errors import RateLimitExceeded

from ephemera import embedded
from ephemera.adapters.limits import AsyncEphemeraStorage, EphemeraStorage
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from tests.adapters.test_extras import imported

KINDS = list(STRATEGIES)
LIMIT = RateLimitItemPerHour(3)


def ours(url: str, scheme: str = "ephemera", **options: Any) -> Any:
    """Our storage for a server, as users get it."""
    kind = "+unix" if url.startswith("unix") else url.partition("://")[0].removeprefix("redis")
    return storage_from_string(f"{scheme}{kind}://{url.partition('://')[2]}", **options)


@pytest.fixture
def prefix() -> str:
    """What the keys of a test begin with."""
    return uuid4().hex


@pytest.fixture
def storage(server: Any, prefix: str) -> Any:
    """A synchronous storage with keys of its own."""
    made = ours(server.url, key_prefix=prefix)
    yield made
    made.close()


@pytest.mark.parametrize("strategy", KINDS)
def test_hits_are_admitted_up_to_the_limit(storage: Any, strategy: str) -> None:
    """Three of four, counted for each identifier; clearing one admits it again."""
    limiter = STRATEGIES[strategy](storage)
    assert [limiter.hit(LIMIT, "ann") for _ in range(4)] == [True, True, True, False]
    assert limiter.hit(LIMIT, "bob")
    assert not limiter.test(LIMIT, "ann")
    assert limiter.get_window_stats(LIMIT, "bob").remaining == 2
    limiter.clear(LIMIT, "ann")
    assert limiter.hit(LIMIT, "ann")


@pytest.mark.parametrize("strategy", KINDS)
def test_threads_share_a_limit(storage: Any, strategy: str) -> None:
    """However many ask at once, exactly the limit is admitted."""
    limiter, limit = STRATEGIES[strategy](storage), RateLimitItemPerHour(5)
    with ThreadPoolExecutor(20) as threads:
        assert sum(threads.map(lambda _: limiter.hit(limit, "all"), range(100))) == 5


@pytest.mark.parametrize("strategy", KINDS)
async def test_async_tasks_share_a_limit(server: Any, prefix: str, strategy: str) -> None:
    """The async storage counts for the same keys as the synchronous one."""
    mine = ours(server.url, "async+ephemera", key_prefix=prefix)
    strategies: dict[str, Any] = {**aio_strategies.STRATEGIES}
    limiter, limit = strategies[strategy](mine), RateLimitItemPerHour(5)
    assert sum(await asyncio.gather(*[limiter.hit(limit, "all") for _ in range(50)])) == 5
    theirs = ours(server.url, key_prefix=prefix)
    assert not await asyncio.to_thread(STRATEGIES[strategy](theirs).hit, limit, "all")
    theirs.close()
    await mine.aclose()


@pytest.mark.standalone("its URL is that of one server")
@pytest.mark.parametrize("strategy", KINDS)
def test_keys_are_those_of_the_redis_storage_of_limits(
    server: Valkey, prefix: str, storage: Any, strategy: str
) -> None:
    """During a rolling deploy, both count for one limit, whichever begins."""
    theirs = storage_from_string(server.url, key_prefix=prefix)
    for first, second in ((storage, theirs), (theirs, storage)):
        limit = RateLimitItemPerHour(4, namespace=type(first).__name__)
        one, other = STRATEGIES[strategy](first), STRATEGIES[strategy](second)
        assert [each.hit(limit, "ann") for each in (one, other, one, other, one, other)] == [True] * 4 + [
            False
        ] * 2
        assert (
            one.get_window_stats(limit, "ann").remaining
            == other.get_window_stats(limit, "ann").remaining
            == 0
        )


@pytest.mark.parametrize("strategy", KINDS)
def test_every_key_expires(storage: Any, strategy: str) -> None:
    """What a hit writes has a TTL, even when another program has removed it."""
    limiter = STRATEGIES[strategy](storage)
    store = storage._store
    keys = f"{storage.key_prefix}*"
    limiter.hit(LIMIT, "ann")
    names = [name for node in store.aio.client().nodes() for name in store.wait(_keys(node, keys))]
    assert names
    assert all(store.call("PTTL", name) > 0 for name in names)
    if strategy == "fixed-window":
        store.call("PERSIST", names[0])
        limiter.hit(LIMIT, "ann")
        assert store.call("PTTL", names[0]) > 0


async def _keys(node: Any, pattern: str) -> Any:
    return await node.call("KEYS", pattern)


def test_a_large_cost_is_taken_at_once(storage: Any) -> None:
    """A hundred thousand entries of a moving window, beyond what a fast call may take."""
    limiter, limit = STRATEGIES["moving-window"](storage), RateLimitItemPerHour(100_000)
    assert limiter.hit(limit, cost=99_999)
    assert not limiter.hit(limit, cost=2)
    assert limiter.get_window_stats(limit).remaining == 1


def test_reset_removes_its_own_keys_alone(storage: Any, server: Any, prefix: str) -> None:
    """A prefix with characters that SCAN would interpret is taken literally."""
    odd, other = ours(server.url, key_prefix=f"{prefix}[*]"), ours(server.url, key_prefix=f"{prefix}[x]")
    for each in (odd, other):
        for number in range(3):
            each.incr(f"{number}", 60)
    assert odd.reset() == 3
    assert other.get("0") == 1
    assert other.reset() == 3
    odd.close()
    other.close()


def test_it_works_on_a_cluster_and_sentinel(request: pytest.FixtureRequest, prefix: str) -> None:
    """By their URLs, with all strategies."""
    for fixture in ("cluster", "sentinel"):
        made = ours(request.getfixturevalue(fixture).url, key_prefix=prefix)
        for name, strategy in STRATEGIES.items():
            assert [strategy(made).hit(LIMIT, name) for _ in range(4)] == [True, True, True, False]
        assert made.reset() > 0
        made.close()


@pytest.mark.parametrize("password", ["", "a/b@c"])
def test_sentinels_have_the_password_of_the_servers_or_their_own(password: str, prefix: str) -> None:
    """As with limits' own storage for Sentinels; those without a password take any."""
    with embedded.sentinel(replicas=0, password=password) as servers:
        url = f"ephemera+sentinel://127.0.0.1:{servers.sentinels[0].port}/mymaster"
        given = password or "needless"
        own: tuple[dict[str, Any], ...] = (
            {},
            {"sentinel_kwargs": {"password": given}},
            {"sentinel_password": given},
        )
        for options in own:
            made = EphemeraStorage(url, password=given, key_prefix=prefix, **options)
            assert made.incr("a", 60)
            made.close()
        if password:
            wrong = EphemeraStorage(url, password=password, sentinel_kwargs={"password": "other"})
            assert not wrong.check()
            wrong.close()


def test_a_forked_process_counts_for_the_same_limit(storage: Any) -> None:
    """The child connects by itself, and the parent's connection still works."""
    limiter = STRATEGIES["fixed-window"](storage)
    assert limiter.hit(LIMIT, "ann")
    child = os.fork()
    if child == 0:
        os._exit(0 if limiter.hit(LIMIT, "ann") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert limiter.get_window_stats(LIMIT, "ann").remaining == 1


def test_one_async_storage_serves_one_loop_after_another(server: Any, prefix: str) -> None:
    """A module-level storage outlives `asyncio.run`."""
    limiter = aio_strategies.FixedWindowRateLimiter(ours(server.url, "async+ephemera", key_prefix=prefix))
    assert [asyncio.run(limiter.hit(LIMIT, "ann")) for _ in range(4)] == [True, True, True, False]


def test_an_outage_is_an_error_that_can_be_wrapped() -> None:
    """At once, as our error or as that of limits; the storage works again when the server is back."""
    with embedded.valkey() as server:
        plain, wrapping = ours(server.url), ours(server.url, wrap_exceptions=True)
        assert plain.incr("a", 60) == wrapping.incr("b", 60) == 1
        server.kill()
        assert not plain.check()
        with pytest.raises(ConnectionFailed):
            plain.incr("a", 60)
        with pytest.raises(StorageError):
            wrapping.incr("a", 60)
        plain.close()
        wrapping.close()


@pytest.mark.parametrize(
    "options", [{"socket_timeout": 3}, {"timeout": "soon"}, {"sentinel_kwargs": {"password": "secret"}}]
)
@pytest.mark.parametrize("scheme", ["ephemera", "async+ephemera"])
def test_a_wrong_option_is_refused(scheme: str, options: dict[str, Any]) -> None:
    """The error of limits says which option."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        storage_from_string(f"{scheme}://localhost:6379", **options)


def test_credentials_may_be_options() -> None:
    """As for the storages of limits; they win over those in the URL."""
    with embedded.valkey(password="a/b@c") as server:
        made = EphemeraStorage(f"ephemera://127.0.0.1:{server.port}", password="a/b@c")
        assert made.check()
        made.close()


def test_flask_limiter_uses_it_by_url(server: Any, prefix: str) -> None:
    """The third request of a minute is 429, with the headers of Flask-Limiter."""
    app = Flask(__name__)
    Limiter(
        lambda: "everyone",
        app=app,
        default_limits=["2 per minute"],
        storage_uri=server.url.replace("redis", "ephemera", 1),
        storage_options={"key_prefix": prefix},
        strategy="moving-window",
        headers_enabled=True,
    )

    @app.get("/")
    def index() -> str:
        return "hello"

    answers = [app.test_client().get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["X-RateLimit-Remaining"] == "1"


def test_slowapi_uses_it_by_url() -> None:
    """On the thread of the event loop, as slowapi does; its fallback in memory counts while Redis is down."""
    with embedded.valkey() as server:
        limiter = slowapi.Limiter(
            lambda: "everyone",
            storage_uri=server.url.replace("redis", "ephemera", 1),
            in_memory_fallback_enabled=True,
        )
        app = FastAPI()
        app.state.limiter = limiter
        app.add_exception_handler(RateLimitExceeded, lambda *_: PlainTextResponse("no", 429))

        @app.get("/")
        @limiter.limit("2/hour")
        async def index(request: Request) -> str:
            return "hello"

        with TestClient(app) as client:
            assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
            server.kill()
            assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
        storage: Any = limiter._storage
        storage.close()


def test_both_storages_are_registered() -> None:
    """By import, for the scheme of each kind of server."""
    assert isinstance(storage_from_string("ephemera://localhost:1"), EphemeraStorage)
    assert isinstance(storage_from_string("async+ephemera+cluster://localhost:1"), AsyncEphemeraStorage)
    with pytest.raises(ConfigurationError):
        storage_from_string("ephemera+sentinel://localhost:26379")  # without the name of a master


def test_a_sliding_window_ends_with_its_key(storage: Any) -> None:
    """At its first millisecond a window ends one length later, not at once."""
    limiter, limit = STRATEGIES["sliding-window-counter"](storage), RateLimitItemPerMinute(2)
    limiter.hit(limit)
    left = storage.get_sliding_window(limit.key_for(), limit.get_expiry())[3]
    assert 60 < left < 120
    assert limiter.get_window_stats(limit).remaining == 1


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("limits", "limits", "limits"),
        ("cachelib", "cachelib", "cachelib"),
        ("flask_caching", "flask_caching", "flask-caching"),
        ("dogpile", "dogpile", "dogpile"),
    ],
)
def test_the_extra_is_named(adapter: str, package: str, extra: str) -> None:
    """An adapter without its library says what to install."""
    assert f"pip install 'ephemera-data[{extra}]'" in imported(adapter, {package}).stderr
