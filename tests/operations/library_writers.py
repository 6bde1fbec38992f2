"""What other libraries write to Redis: by the library itself where it installs, otherwise as documented.

`WRITERS` maps the name of a library to a function that writes its keys to a server. `DOCUMENTED` has commands
that create the keys of libraries in other languages, or that need modules the embedded server does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from fastapi import Depends, FastAPI


def _add(a: int, b: int) -> int:
    return a + b


def write_celery(url: str) -> None:
    """A task in the default queue, one being processed, a result, a group, and a broadcast."""
    from celery import Celery, group

    app = Celery("app", broker=url, backend=url)
    app.conf.update(broker_connection_retry_on_startup=True, task_default_queue="celery")

    add: Any = app.task(name="add")(_add)
    add.delay(1, 2)
    add.apply_async((1, 2), queue="emails")
    app.backend.store_result("7c9e6679-7425-40de-944b-e07fc1f90ae7", 3, "SUCCESS")
    saved = group(add.s(1, 1), add.s(2, 2)).apply_async()
    saved.save()
    with app.connection_for_read() as connection, connection.channel() as channel:
        channel.do_restore = False  # on closing, kombu would put back what was fetched
        channel.basic_get("celery")
        app.control.broadcast("ping", connection=connection, reply=False)
    app.close()


def write_rq(url: str) -> None:
    """A finished job, a failed one, a waiting one and a scheduled one."""
    from rq import Queue, SimpleWorker

    connection = redis.from_url(url)
    queue = Queue("mails", connection=connection)
    queue.enqueue("operator.add", 1, 2)
    queue.enqueue("operator.truediv", 1, 0)
    SimpleWorker([queue], connection=connection).work(burst=True, logging_level="CRITICAL")
    queue.enqueue("operator.add", 1, 2)
    queue.enqueue_in(timedelta(hours=1), "operator.add", 1, 2)
    connection.close()


def write_huey(url: str) -> None:
    """A task in the queue, a scheduled one and a result."""
    from huey import RedisHuey

    huey = RedisHuey("mails", url=url)

    add: Any = huey.task(name="add")(_add)
    add(1, 2)
    huey.execute(huey.dequeue())
    add(1, 2)
    huey.add_schedule(add.s(1, 2, delay=100))
    huey.storage.conn.close()


def write_dramatiq(url: str) -> None:
    """A message in the queue, a delayed one, and one that a worker holds."""
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=url, middleware=[])
    broker.declare_queue("mails")
    for delay in (None, None, 60_000):
        broker.enqueue(
            dramatiq.Message(queue_name="mails", actor_name="a", args=(), kwargs={}, options={}), delay=delay
        )
    next(iter(broker.consume("mails", timeout=1)))
    broker.client.close()


async def _arq(url: str) -> None:
    from arq import create_pool
    from arq.connections import RedisSettings
    from arq.worker import Worker

    async def add(_: Any) -> int:
        return 3

    add.__qualname__ = "add"
    pool = await create_pool(RedisSettings.from_dsn(url))
    await pool.enqueue_job("add")
    worker = Worker([add], redis_pool=pool, burst=True, poll_delay=0, handle_signals=False)
    await worker.main()
    await pool.enqueue_job("add", _defer_by=100)
    await worker.close()
    await pool.aclose()


async def _taskiq(url: str) -> None:
    from taskiq import TaskiqResult
    from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker

    for broker in (
        ListQueueBroker(url, queue_name="taskiq"),
        RedisStreamBroker(url, queue_name="taskiq:stream"),
    ):
        broker.with_result_backend(RedisAsyncResultBackend(url, prefix_str="taskiq"))
        task = broker.register_task(lambda: 1, task_name="one")
        await broker.startup()
        await task.kiq()
        result = TaskiqResult(is_err=False, return_value=1, execution_time=0.1)
        await broker.result_backend.set_result("7c9e6679742540de944be07fc1f90ae7", result)
        await broker.shutdown()


def write_django_cache(url: str) -> None:
    """A page and a cached view, by Django's own Redis cache, and values with a prefix by django-redis."""
    from django.conf import settings
    from django.core.cache.backends.redis import RedisCache

    cache = RedisCache(url, {})
    cache.set("page-1", "x", 60)
    cache.set("views.decorators.cache.cache_page..GET.abc", "x", 60)
    cache.close()
    if not settings.configured:
        settings.configure()
    from django_redis.cache import RedisCache as DjangoRedis

    prefixed: Any = DjangoRedis(url, {"KEY_PREFIX": "myapp"})
    for number, value in enumerate(("x", {"a": 1}, 7)):
        prefixed.set(f"page-{number}", value, 60)


def write_django_sessions(url: str) -> None:
    """A session, as Django's session engine names it."""
    from django.contrib.sessions.backends.cache import KEY_PREFIX
    from django.core.cache.backends.redis import RedisCache

    cache = RedisCache(url, {})
    cache.set(f"{KEY_PREFIX}k3j5k3j5k3j5k3j5k3j5k3j5k3j5k3j5", {"user": 1}, 60)
    cache.close()


def write_flask_session(url: str) -> None:
    """A session by Flask-Session."""
    from flask import Flask, session
    from flask_session import Session

    app = Flask("app")
    connection = redis.from_url(url)
    app.config.update(SESSION_TYPE="redis", SESSION_REDIS=connection)
    Session(app)

    @app.get("/")
    def index() -> str:
        session["user"] = 1
        return ""

    app.test_client().get("/")
    connection.close()


def write_flask_caching(url: str) -> None:
    """A cached view by Flask-Caching."""
    from flask import Flask
    from flask_caching import Cache

    app = Flask("app")
    cache = Cache(app, config={"CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": url})
    with app.app_context():
        cache.set("view//", "x", timeout=60)


async def _starsessions(url: str) -> None:
    from starsessions.stores.redis import RedisStore

    connection: Any = redis.asyncio.from_url(url)
    await RedisStore(connection=connection).write("7c9e6679742540de944be07fc1f90ae7", b"{}", 60, 60)
    await connection.aclose()


def write_limits(url: str) -> None:
    """A hit of each kind of window."""
    import limits

    storage: Any = limits.storage.storage_from_string(url)
    for name, strategy in limits.strategies.STRATEGIES.items():
        strategy(storage).hit(limits.parse("10/minute"), name)
    storage.storage.close()


async def _cashews(url: str) -> None:
    from cashews import Cache

    cache = Cache()
    cache.setup(url)
    await cache.set("user:1", {"name": "ann"}, expire=60, tags=("users",))
    await cache.close()


async def _aiocache(url: str) -> None:
    from aiocache import Cache, cached

    at = urlsplit(url)
    cache = Cache(
        Cache.REDIS, endpoint=at.hostname, port=at.port, password=at.password, namespace="aiocache:"
    )
    await cache.set("user:1", "ann", ttl=60)
    await cache.close()
    options = {"endpoint": at.hostname, "port": at.port, "password": at.password, "ttl": 60}

    @cached(cache=Cache.REDIS, **options)  # type: ignore[untyped-decorator]
    async def answer(*_: Any, **__: Any) -> int:
        return 42

    await answer()
    await answer("a")
    await answer("a", limit=2)
    await answer.cache.close()


async def _fastapi_limiter(url: str) -> None:
    from fastapi_limiter.depends import RateLimiter
    from httpx import ASGITransport, AsyncClient
    from pyrate_limiter import Duration, Limiter, Rate, RedisBucket

    connection: Any = redis.asyncio.from_url(url)
    limiter = Limiter(await RedisBucket.init([Rate(10, Duration.MINUTE)], connection, "users-per-minute"))
    app = FastAPI()

    @app.get("/users", dependencies=[Depends(RateLimiter(limiter=limiter))])
    async def users() -> int:
        return 1

    async with AsyncClient(transport=ASGITransport(app), base_url="http://x") as client:
        await client.get("/users")
    limiter.close()
    await connection.aclose()


def write_redlock(url: str) -> None:
    """A lock by pottery."""
    from pottery import Redlock

    connection = redis.from_url(url)
    Redlock(key="printer", masters={connection}, auto_release_time=60).acquire()
    connection.close()


async def _fastapi_cache(url: str) -> None:
    from fastapi_cache import FastAPICache
    from fastapi_cache.backends.redis import RedisBackend
    from fastapi_cache.decorator import cache

    connection: Any = redis.asyncio.from_url(url)
    FastAPICache.init(RedisBackend(connection), prefix="fastapi-cache")

    async def answer() -> int:
        return 42

    await cache(expire=60)(answer)()
    FastAPICache.reset()
    await connection.aclose()


def write_dogpile(url: str) -> None:
    """A cached value by dogpile.cache, and its lock while another caller computes."""
    from dogpile.cache import make_region

    region = make_region().configure(
        "dogpile.cache.redis",
        arguments={"url": url, "distributed_lock": True, "lock_timeout": 60, "thread_local_lock": False},
    )

    region.cache_on_arguments()(lambda number: number)(3)
    region.backend.get_mutex("app:load|3").acquire()


def write_redis_py_lock(url: str) -> None:
    """A lock by redis-py."""
    connection = redis.from_url(url)
    connection.lock("lock:report", timeout=60).acquire()
    connection.close()


async def _channels(url: str) -> None:
    from channels_redis.core import RedisChannelLayer

    layer = RedisChannelLayer(hosts=[url])
    await layer.group_add("chat", "specific.abc!def")
    await layer.send("specific.abc!def", {"type": "hello"})
    await layer.send("tasks", {"type": "hello"})
    await layer.close_pools()


def _sync(write: Callable[[str], Any]) -> Callable[[str], None]:
    return lambda url: asyncio.run(write(url))


WRITERS: dict[str, Callable[[str], None]] = {
    "Celery": write_celery,
    "RQ": write_rq,
    "huey": write_huey,
    "dramatiq": write_dramatiq,
    "arq": _sync(_arq),
    "taskiq": _sync(_taskiq),
    "Django cache": write_django_cache,
    "Django sessions": write_django_sessions,
    "Flask-Session": write_flask_session,
    "Flask-Caching": write_flask_caching,
    "starsessions": _sync(_starsessions),
    "limits": write_limits,
    "cashews": _sync(_cashews),
    "aiocache": _sync(_aiocache),
    "fastapi-cache": _sync(_fastapi_cache),
    "dogpile.cache": write_dogpile,
    "fastapi-limiter": _sync(_fastapi_limiter),
    "redis-py locks": write_redis_py_lock,
    "Redlock": write_redlock,
    "Channels": _sync(_channels),
}
"""The libraries that install here."""

DOCUMENTED: dict[str, list[str]] = {
    "BullMQ": [
        "HSET bull:mails:meta opts.maxLenEvents 10000",
        "INCR bull:mails:id",
        "INCR bull:mails:pc",
        "LPUSH bull:mails:wait 1",
        "ZADD bull:mails:completed 1 2",
        "ZADD bull:mails:failed 1 3",
        "ZADD bull:mails:delayed 1 4",
        "ZADD bull:mails:marker 0 0",
        "XADD bull:mails:events * event added",
        "HSET bull:mails:1 name welcome data {}",
        "SET bull:mails:1:lock token PX 30000",
    ],
    "Sidekiq": [
        "INCR stat:processed",
        "SADD queues default",
        "LPUSH queue:default {}",
        "ZADD retry 1 {}",
        "ZADD schedule 1 {}",
    ],
    "LangGraph": ["HSET checkpoint:thread:ns:1 data x", "ZADD write_keys_zset:thread:ns:1 1 x"],
    "RedisVL": ["HSET llmcache:abc prompt hello response world", "HSET chat_session:1 role user"],
    "Socket.IO": ["XADD socket.io * uid 1 nsp /", "SET sio:session:abc x PX 60000"],
}
"""Keys of libraries for other languages or servers with modules, as their documentation describes them.

Those of BullMQ are what its Python package 3.4 wrote; it requires exact versions that others here exclude.
"""
