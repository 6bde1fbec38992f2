"""The synchronous drop-in for redis-py: what its own test suite does not ask (see tests/certified)."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ephemera import embedded
from ephemera.adapters.redis_py.sync import Pipeline, Redis, install
from ephemera.embedded import Cluster, Valkey


class SoftTimeLimit(Exception):
    """What a signal handler raises."""


ONCE = Retry(NoBackoff(), 0)
SOON = 60  # seconds: how long to wait for what happens at once


@pytest.fixture(scope="module")
def own_server() -> Iterator[Valkey]:
    """A server of this file's own."""
    with embedded.valkey(config={"enable-debug-command": "yes"}) as started:
        yield started


@pytest.fixture
def client(own_server: Valkey) -> Iterator[Redis]:
    """Our client."""
    with Redis.from_url(own_server.url) as opened:
        opened.flushdb()
        yield opened


def connection_of(client: Any) -> Any:
    """The one connection of its pool, which is idle."""
    [connection] = client.connection_pool._available_connections
    return connection


def is_ours(client: Any) -> bool:
    """Whether the last command took our way."""
    return getattr(connection_of(client), "_ephemera_exchange", None) is not None


COMMANDS: list[tuple[str, tuple[Any, ...]]] = [
    ("set", ("a", "ä", 60)), ("get", ("a",)), ("get", ("none",)), ("incrby", ("n", 5)),
    ("incrbyfloat", ("f", 1.5)), ("hset", ("h", "field", b"\xff")), ("hgetall", ("h",)),
    ("lpush", ("l", 1, 2.5, b"x")), ("lrange", ("l", 0, -1)), ("sadd", ("s", "m")), ("smembers", ("s",)),
    ("zadd", ("z", {"m": 1.5})), ("zrange", ("z", 0, -1, False, True)), ("expire", ("a", 60)),
    ("exists", ("a", "n")), ("object", ("encoding", "n")), ("config_get", ("maxmemory",)), ("dump", ("n",)),
    ("eval", ("return {1, 'two', {3}}", 0)), ("xadd", ("x", {"k": "v"}, "1-1")), ("xrange", ("x",)),
    ("setrange", ("a", 0, memoryview(b"view"))), ("blpop", (["l"], 1)), ("execute_command", (b"GET", "a")),
    ("get", (object(),)), ("lpush", ("a", 1)), ("execute_command", ("nonsense",)), ("echo", ("",)),
    ("delete", ("a", "n")),
    *(("eval", (f"return redis.error_reply('{code} why')", 0)) for code in ("OOM", "NOPERM", "READONLY")),
]  # fmt: skip
LATIN = {"decode_responses": True, "encoding": "latin-1"}


@pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 2}, LATIN])
def test_replies_and_errors_are_those_of_redis_py(own_server: Valkey, options: dict[str, Any]) -> None:
    """Command by command, one by one and in both kinds of pipelines, with every kind of argument."""

    def outcomes(kind: Any) -> list[Any]:
        with kind.from_url(own_server.url, **options) as client:
            client.flushall()
            singly = [outcome(getattr(client, name), *args) for name, args in COMMANDS]
            return [*singly, outcome(batch, client, False), outcome(batch, client, True)]

    def outcome(function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as problem:
            return type(problem), str(problem)

    def batch(client: Any, transaction: bool) -> Any:
        pipeline = client.pipeline(transaction=transaction)
        for name, args in COMMANDS[:20]:
            getattr(pipeline, name)(*args)
        return [each if not isinstance(each, Exception) else str(each) for each in pipeline.execute(False)]

    assert outcomes(Redis) == outcomes(redis.Redis)


def test_threads_get_their_own_replies(client: Redis, key: str) -> None:
    """Eight threads that call and pipeline at once never see each other's replies."""

    def work(number: int) -> bool:
        name, value = f"{key}:{number}", str(number).encode() * 100
        client.set(name, value)
        pipeline = client.pipeline(transaction=False).get(name).echo(value)
        return all(client.get(name) == value for _ in range(200)) and pipeline.execute() == [value, value]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert len(client.connection_pool._available_connections) <= 8
    assert not client.connection_pool._in_use_connections


def test_transactions_stay_contiguous_among_other_callers(client: Redis, key: str) -> None:
    """What is between MULTI and EXEC sees no write of another thread, and a watched change is noticed."""

    def pair(_: int) -> bool:
        first, second = client.pipeline().incr(key).incr(key).execute()
        return bool(second == first + 1)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(pair, range(200)))
    with client.pipeline() as watching:
        watching.watch(key)
        client.incr(key)
        with pytest.raises(redis.WatchError):
            watching.multi() or watching.set(key, 0).execute()


def test_the_reply_of_an_interrupted_call_is_dropped(client: Redis, key: str) -> None:
    """A signal handler raises in a call; the next calls get their own replies, on another connection."""
    client.ping()
    before = connection_of(client)._sock

    def interrupt(number: int, frame: object) -> None:
        raise SoftTimeLimit

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(SoftTimeLimit):
            client.blpop([key], 0)
    finally:
        signal.signal(signal.SIGALRM, handler)
    client.rpush(key, "late")
    assert [client.echo(str(number)) for number in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert connection_of(client)._sock is not before


def test_a_hanging_server_is_a_timeout_and_its_late_reply_is_dropped(own_server: Valkey) -> None:
    """`socket_timeout` holds for commands and pipelines, and for 'read later' code like pub/sub."""
    with Redis.from_url(own_server.url, socket_timeout=0.2, retry=ONCE) as client:
        client.set("a", "first")
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(redis.TimeoutError):
                client.get("a")
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
    with Redis.from_url(own_server.url, socket_timeout=SOON) as client:
        assert client.echo("second") == b"second"
        with client.pubsub() as messages:
            messages.subscribe("c")
            assert messages.get_message(timeout=SOON)["type"] == "subscribe"
            assert messages.get_message(timeout=0.01) is None


def test_a_connection_that_ended_is_replaced(client: Redis) -> None:
    """By the retries of redis-py when it has just been used; and a pool that was disconnected works on."""
    client.set("a", "1")
    client.client_kill_filter(_id=client.client_id(), skipme=False)
    assert client.get("a") == b"1"
    client.connection_pool.disconnect()
    assert client.get("a") == b"1"
    assert is_ours(client)


def test_a_connection_that_was_left_dirty_is_not_trusted(own_server: Valkey) -> None:
    """The pool looks at one that other code has used since our last command, as it does without us."""
    with Redis.from_url(own_server.url, protocol=2) as client:
        client.set("a", "1")
        connection = client.connection_pool.get_connection()
        connection.send_command("ECHO", "stray")
        assert connection.can_read(timeout=SOON)
        client.connection_pool.release(connection)
        assert client.get("a") == b"1"


def test_a_command_with_two_replies_leaves_nothing_behind(own_server: Valkey) -> None:
    """What follows the first reply does not become the reply of the next command."""
    with Redis.from_url(own_server.url, protocol=2) as client:
        client.execute_command("SUBSCRIBE", "one", "two")
        assert client.echo("mine") == b"mine"


def test_the_limit_of_the_pool_holds(own_server: Valkey, key: str) -> None:
    """A thread that finds no connection free gets redis-py's error, and the slot is free again afterwards."""
    with Redis.from_url(own_server.url, max_connections=1) as client:
        client.ping()
        taken = client.connection_pool.get_connection()
        with pytest.raises(redis.exceptions.MaxConnectionsError):
            client.get(key)
        client.connection_pool.release(taken)
        assert client.get(key) is None


def test_a_blocking_pool_is_served_too(own_server: Valkey, key: str) -> None:
    """With fewer connections than threads, they wait for each other."""
    pool = redis.BlockingConnectionPool.from_url(own_server.url, max_connections=2, timeout=SOON)
    with Redis.from_pool(pool) as client, ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(lambda _: client.incr(key), range(60))) == [*range(1, 61)]


def test_subclasses_with_their_own_parsing_are_respected(own_server: Valkey) -> None:
    """A class that overrides `parse_response` sees every reply."""

    class Loud(Redis):
        def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
            return super().parse_response(connection, command_name, **options), "seen"

    with Loud.from_url(own_server.url) as client:
        assert client.echo("a") == (b"a", "seen")


def test_health_checks_are_made(own_server: Valkey) -> None:
    """After `health_check_interval` a connection is asked with PING before it is used."""
    with Redis.from_url(own_server.url, health_check_interval=1000) as client:
        client.set("a", "1")
        client.config_resetstat()
        client.get("a")
        assert "cmdstat_ping" not in client.info("commandstats")
        connection_of(client).next_health_check = 0
        client.get("a")
        assert client.info("commandstats")["cmdstat_ping"]["calls"] == 1
        assert is_ours(client)


def test_messages_are_handled_in_a_thread(client: Redis) -> None:
    """`run_in_thread` calls handlers while other threads publish."""
    heard, done = [], threading.Event()

    def handle(message: dict[str, Any]) -> None:
        heard.append(message["data"])
        if len(heard) == 50:
            done.set()

    messages = client.pubsub()
    messages.subscribe(news=handle)
    assert messages.get_message(timeout=SOON)
    worker = messages.run_in_thread(sleep_time=0.1)
    for number in range(50):
        client.publish("news", number)
    assert done.wait(SOON)
    worker.stop()
    worker.join(SOON)
    assert heard == [str(number).encode() for number in range(50)]


def test_locks_and_scripts(client: Redis, key: str) -> None:
    """redis-py's own lock excludes other holders, and a script that the server forgot is loaded again."""
    with client.lock(key, timeout=SOON):
        assert not client.lock(key, blocking=False).acquire()
    double = client.register_script("return ARGV[1] * 2")
    assert double(args=[4]) == 8
    client.script_flush()
    assert double(args=[5]) == 10
    assert double(args=[6], client=client.pipeline()).execute() == [12]


def test_clients_that_are_dropped_close_their_connections(own_server: Valkey) -> None:
    """Without a call of the garbage collector: nothing keeps a connection in a cycle."""
    gc.disable()
    try:
        pool = redis.ConnectionPool.from_url(own_server.url, protocol=2)  # with 3, redis-py has one
        Redis(connection_pool=pool).ping()
        descriptor = pool._available_connections[0]._sock
        del pool
        assert descriptor.fileno() == -1
    finally:
        gc.enable()


def test_install_serves_what_exists_already_and_can_be_undone(own_server: Valkey) -> None:
    """A client that was created before, and its pipelines, take our way until the last is closed."""
    with redis.Redis.from_url(own_server.url) as client:
        client.ping()
        assert not is_ours(client)
        with install(), install():
            assert client.echo("a") == b"a"
            assert is_ours(client)
            assert client.pipeline().echo("b").execute() == [b"b"]
        assert redis.Redis._execute_command is not Redis._execute_command
        assert redis.client.Pipeline._execute_pipeline is not Pipeline._execute_pipeline
        assert client.echo("c") == b"c"


@pytest.mark.parametrize("installed", [False, True])
def test_a_cluster_works_as_without_us(cluster: Cluster, key: str, installed: bool) -> None:
    """`RedisCluster` takes redis-py's own way, with `install()` too."""
    url = cluster.url.replace("redis+cluster://", "redis://").partition(",")[0]
    with install() if installed else nullcontext(), redis.RedisCluster.from_url(url) as client:
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(lambda n: client.set(f"{key}:{n}", n), range(200)))
        pipeline = client.pipeline()
        for number in range(200):
            pipeline.get(f"{key}:{number}")
        assert pipeline.execute() == [b"%d" % number for number in range(200)]
        block = client.pipeline(transaction=True).incr(f"{{{key}}}:a").incr(f"{{{key}}}:b")
        assert block.execute() == [1, 1]
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.lpush(f"{{{key}}}:a", "x")
        pools = [
            node.redis_connection.connection_pool for node in client.get_nodes() if node.redis_connection
        ]
        used = [connection for pool in pools for connection in pool._available_connections]
        assert used
        assert not any("_ephemera_exchange" in vars(connection) for connection in used)


FORKING = """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # about fork with threads, which is what we test
from ephemera.adapters.redis_py.sync import Redis
client = Redis.from_url({url!r})
client.set("number", 0)
stop = threading.Event()
def busy():
    while not stop.is_set():
        client.get("number")
threads = [threading.Thread(target=busy) for _ in range(4)]
[each.start() for each in threads]
children = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        for _ in range(20):
            client.incr("number")
        own = [each.pid == os.getpid() for each in client.connection_pool._available_connections]
        os._exit(0 if own == [True] else 1)
    children.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in children]
stop.set()
[each.join() for each in threads]
assert codes == [0] * 20, codes
assert client.get("number") == b"400"
"""

GREENLETS = """
from gevent import monkey
monkey.patch_all()
import gevent
from ephemera.adapters.redis_py.sync import Redis
client = Redis.from_url({url!r})
client.delete("queue")
waiting = gevent.spawn(client.blpop, ["queue"], 60)
values = [gevent.spawn(client.echo, str(number)) for number in range(20)]
gevent.joinall(values, raise_error=True)
assert [each.value for each in values] == [str(number).encode() for number in range(20)]
assert not waiting.ready()  # it blocks its own greenlet alone
client.rpush("queue", "go")
assert waiting.get(timeout=60) == (b"queue", b"go") or waiting.value == [b"queue", b"go"]
assert "gevent" in type(client.connection_pool._available_connections[0]._sock).__module__
"""


@pytest.mark.parametrize("program", [FORKING, GREENLETS], ids=["fork", "gevent"])
def test_other_processes_and_greenlets(own_server: Valkey, program: str) -> None:
    """Children forked among calling threads use their own connections; greenlets wait side by side."""
    done = subprocess.run(
        [sys.executable, "-c", program.format(url=own_server.url)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
