"""The client in place of `redis.asyncio.Redis`: the same replies and errors, on one connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import (
    NoScriptError,
    RedisError,
    ResponseError,
    WatchError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from ephemera import embedded
from ephemera.adapters.redis_py import Redis
from ephemera.embedded import Valkey
from tests.adapters.redis_clients import NEVER, both, connections, eventually, ours

pytestmark = pytest.mark.standalone("redis.asyncio.Redis is the client of one server")

COMMANDS: tuple[tuple[Any, ...], ...] = (
    ("SET", "{key}", "1.5"),
    ("GET", "{key}"),
    ("INCRBYFLOAT", "{key}", 0.25),
    ("HSET", "{key}:h", "field", "value", "other", 2),
    ("HGETALL", "{key}:h"),
    ("HRANDFIELD", "{key}:h", 5, "WITHVALUES"),
    ("ZADD", "{key}:z", 1.5, "a", 2, "b"),
    ("ZRANGE", "{key}:z", 0, -1, "WITHSCORES"),
    ("ZSCORE", "{key}:z", "a"),
    ("SADD", "{key}:s", "one"),
    ("SMEMBERS", "{key}:s"),
    ("XADD", "{key}:x", "1-1", "f", "v"),
    ("XRANGE", "{key}:x", "-", "+"),
    ("XREAD", "STREAMS", "{key}:x", "0"),
    ("GEOADD", "{key}:g", 13.4, 52.5, "berlin"),
    ("GEOPOS", "{key}:g", "berlin"),
    ("CONFIG GET", "maxmemory"),
    ("EXISTS", "{key}", "{key}:none"),
    ("GET", "{key}:none"),
    ("EVAL", "return {{1, 'two', false}}", 0),
    ("PING",),
)


@pytest.mark.parametrize("decode_responses", [False, True])
@pytest.mark.parametrize("protocol", [None, 2, 3])
async def test_replies_are_those_of_redis_py(
    server: Valkey, key: str, protocol: int | None, decode_responses: bool
) -> None:
    """For every version of the protocol, and decoded or not, a command gives the same object."""
    options = {"protocol": protocol, "decode_responses": decode_responses}
    async with both(server, **options) as (theirs, client):
        for words in COMMANDS:
            name, *args = [w.format(key=key) if isinstance(w, str) else w for w in words]
            await theirs.delete(key, f"{key}:x") if name in ("SET", "XADD") else None
            expected = await theirs.execute_command(name, *args)
            if name in ("SET", "XADD", "INCRBYFLOAT", "HSET", "ZADD", "SADD", "GEOADD"):
                await theirs.delete(args[0])
                if name == "INCRBYFLOAT":
                    await theirs.set(key, "1.5")
            assert await client.execute_command(name, *args) == expected, name


async def test_another_encoding(server: Valkey, key: str) -> None:
    """Keys and values are encoded as redis-py does; names of commands never are."""
    async with both(server, encoding="latin-1", decode_responses=True) as (theirs, client):
        await client.set(key, "größer")
        assert await theirs.get(key) == await client.get(key) == "größer"
        await client.rpush(f"{key}:list", b"bytes", memoryview(b"view"), 1.5)
        assert await client.pipeline().llen(f"{key}:list").object("encoding", key).execute() == (
            await theirs.pipeline().llen(f"{key}:list").object("encoding", key).execute()
        )


REDIRECTS = ("ASK 1 h:1", "MOVED 1 h:1")
CODES = (
    *("BUSY", "CLUSTERDOWN", "CROSSSLOT", "EXECABORT", "LOADING", "MASTERDOWN", "NOAUTH"),
    *("NOPERM", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS", "WRONGTYPE"),
)
ERRORS: tuple[tuple[Any, ...], ...] = (
    ("LPUSH", "{key}", "x"),
    ("EVALSHA", "0" * 40, 0),
    ("NO-SUCH-COMMAND",),
    ("SET", "{key}", "1", "NO-SUCH-OPTION"),
    ("INCRBY", "{key}", "x"),
    ("GET", None),
    ("SET", "{key}", object()),
    ("SET", "{key}", True),
    ("EVAL", "return redis.error_reply('MINE of my own')", 0),
    ("FCALL", "no_such_function", 0),
    *(("EVAL", f"return redis.error_reply('{text}')", 0) for text in REDIRECTS),
    *(("EVAL", f"return redis.error_reply('{code} why')", 0) for code in CODES),
)


@pytest.mark.parametrize("words", ERRORS)
async def test_errors_are_those_of_redis_py(server: Valkey, key: str, words: tuple[Any, ...]) -> None:
    """A refused command raises the same class with the same text."""
    name, *args = [w.format(key=key) if isinstance(w, str) else w for w in words]
    async with both(server, retry=NEVER) as (theirs, client):
        await theirs.set(key, "text")
        raised = []
        for each in (theirs, client):
            with pytest.raises(RedisError) as caught:
                await each.execute_command(name, *args)
            raised.append((caught.type, str(caught.value).partition(", with args")[0]))
        assert raised[0] == raised[1]


async def test_a_missing_script_is_loaded(server: Valkey, key: str) -> None:
    """A registered script runs by its digest, and is loaded when the server does not know it."""
    async with ours(server) as client:
        script = client.register_script(f"return redis.call('INCR', KEYS[1]) -- {key}")
        with pytest.raises(NoScriptError):
            await client.evalsha(script.sha, 1, key)
        assert [await script(keys=[key]), await script(keys=[key])] == [1, 2]
        async with client.pipeline() as pipe:
            await script(keys=[key], client=pipe)
            assert await pipe.execute() == [3]


async def test_all_tasks_share_one_connection(server: Valkey, key: str) -> None:
    """A thousand concurrent commands and a hundred pipelines need one connection."""
    async with ours(server, client_name=key) as client:
        replies = await asyncio.gather(*(client.incr(key) for _ in range(1000)))
        assert sorted(replies) == list(range(1, 1001))
        await asyncio.gather(*(client.pipeline().incr(key).execute() for _ in range(100)))
        assert connections(server, key) == 1


async def test_a_multi_block_stays_whole_among_other_callers(server: Valkey, key: str) -> None:
    """Nothing runs between the commands of a block: its replies are consecutive numbers."""
    async with ours(server) as client:

        async def block() -> list[int]:
            pipe = client.pipeline()
            for _ in range(20):
                pipe.incr(key)
            replies: list[int] = await pipe.execute()
            return replies

        blocks = [asyncio.create_task(block()) for _ in range(100)]
        await asyncio.gather(*blocks, *(client.incr(key) for _ in range(500)))
        found = [task.result() for task in blocks]
        assert all(replies == list(range(replies[0], replies[0] + 20)) for replies in found)
        assert await client.get(key) == b"2500"


async def test_a_block_larger_than_the_window_stays_whole(server: Valkey, key: str) -> None:
    """More commands than may be in flight are sent in parts, and still nothing runs between them."""
    async with ours(server) as client:
        pipe = client.pipeline()
        for _ in range(25_000):
            pipe.incr(key)
        replies, *others = await asyncio.gather(pipe.execute(), *(client.incr(key) for _ in range(100)))
        assert replies == list(range(replies[0], replies[0] + 25_000))
        assert len(set(others)) == 100


async def test_cancelled_pipelines_leave_the_connection_in_order(server: Valkey, key: str) -> None:
    """A cancelled block is executed as a whole or not at all, and the others get their own replies."""
    async with ours(server, client_name=key) as client:

        async def block(number: int) -> Any:
            return await client.pipeline().incr(key).echo(f"{number}").incr(key).execute()

        tasks = [asyncio.create_task(block(number)) for number in range(200)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        done: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done[::2])
        assert [each[1] for each in done[1::2]] == [b"%d" % number for number in range(1, 200, 2)]
        assert int(await client.get(key)) % 2 == 0
        assert connections(server, key) == 1


async def test_errors_in_a_pipeline(server: Valkey, key: str) -> None:
    """An error is raised with its command, or returned in its position."""
    async with both(server) as (theirs, client):
        for each in (theirs, client):
            for transaction in (True, False):
                pipe = each.pipeline(transaction=transaction).set(key, "text").incr(key).get(key)
                with pytest.raises(ResponseError, match=r"Command # 2 \(INCRBY .* of pipeline"):
                    await pipe.execute()
                pipe = each.pipeline(transaction=transaction).set(key, "text").incr(key).get(key)
                replies = await pipe.execute(raise_on_error=False)
                assert (replies[0], type(replies[1]), replies[2]) == (True, ResponseError, b"text")


async def test_a_watched_key_that_changed_stops_the_transaction(server: Valkey, key: str) -> None:
    """WATCH has a connection of its own: another caller's write is noticed, and `transaction` repeats."""
    async with ours(server) as client:
        async with client.pipeline() as pipe:
            await pipe.watch(key)
            await client.set(key, "5")
            pipe.multi()
            pipe.set(key, "6")
            with pytest.raises(WatchError):
                await pipe.execute()

        async def double(pipe: Any) -> None:
            value = int(await pipe.get(key))
            await asyncio.sleep(0)
            pipe.multi()
            pipe.set(key, value + 1)

        await asyncio.gather(*(client.transaction(double, key) for _ in range(5)))
        assert await client.get(key) == b"10"


async def test_blocking_commands_hold_up_no_other(server: Valkey, key: str) -> None:
    """While pops and stream reads wait, other commands are answered; then each pop gets its element."""
    async with ours(server) as client:
        pops = [asyncio.create_task(client.blpop([f"{key}:{n}"], timeout=60)) for n in range(10)]
        read = asyncio.create_task(client.xread({f"{key}:x": "$"}, block=60_000))
        await eventually(lambda: str(server.ask("INFO", "clients")).count("blocked_clients:11") == 1)
        assert await client.incr(key) == 1
        for n in range(10):
            await client.rpush(f"{key}:{n}", n)
        await client.xadd(f"{key}:x", {"f": "v"})
        assert await asyncio.gather(*pops) == [(f"{key}:{n}".encode(), b"%d" % n) for n in range(10)]
        assert len(await read) == 1


async def test_a_running_script_can_be_killed() -> None:
    """SCRIPT KILL does not wait behind the script that it is to end."""
    with embedded.valkey(config={"lua-time-limit": "10"}) as own:
        async with ours(own, socket_timeout=60) as client:
            running = asyncio.create_task(client.eval("while true do end", 0))
            async with asyncio.timeout(60):
                while not await _killed(client):
                    await asyncio.sleep(0.01)
            with pytest.raises(ResponseError):
                await running


async def _killed(client: Any) -> bool:
    try:
        return bool(await client.script_kill())
    except ResponseError:  # NOTBUSY: it does not run yet
        return False


async def test_a_storm_of_subscriptions(server: Valkey, key: str) -> None:
    """Hundreds of subscribers come at once, beside commands, and each gets every message, in order."""
    async with ours(server, max_connections=1000) as client:

        async def listen(number: int, subscribed: asyncio.Semaphore) -> list[bytes]:
            async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
                await (pubsub.ssubscribe(key) if number % 2 else pubsub.subscribe(key))
                await client.incr(f"{key}:ready")
                subscribed.release()
                return [await _message(pubsub) for _ in range(10)]

        subscribed = asyncio.Semaphore(0)
        listeners = [asyncio.create_task(listen(n, subscribed)) for n in range(200)]
        for _ in listeners:
            await subscribed.acquire()
        for number in range(10):
            await asyncio.gather(client.publish(key, number), client.spublish(key, number))
        expected = [b"%d" % number for number in range(10)]
        assert await asyncio.gather(*listeners) == [expected] * 200


async def _message(pubsub: Any) -> bytes:
    async with asyncio.timeout(60):
        while (message := await pubsub.get_message(timeout=60)) is None:
            pass
    data: bytes = message["data"]
    return data


async def test_select_moves_the_client_as_in_redis_py(server: Valkey, key: str) -> None:
    """After SELECT, the next commands of a client that one task uses are in that database."""
    async with ours(server) as client:
        await client.set(key, "in 0")
        await client.select(3)
        assert await client.get(key) is None
        await client.set(key, "in 3")
        assert await client.pipeline().get(key).execute() == [b"in 3"]
        await client.delete(key)


async def test_libraries_use_the_pool_itself(server: Valkey, key: str) -> None:
    """`connection_pool` is redis-py's: connections are taken, used and returned, and it says its settings."""
    async with ours(server, client_name=key, decode_responses=True) as client:
        await client.set(key, "value")
        pool = client.connection_pool
        connection = await pool.get_connection()
        await connection.send_command("GET", key)
        assert await connection.read_response() == "value"
        await pool.release(connection)
        assert pool.connection_kwargs["client_name"] == key
        assert connections(server, key) == 2
        await pool.disconnect()
        await eventually(lambda: connections(server, key) == 0)
        assert await client.get(key) == "value"
        async with client.client() as single:
            assert await single.client_getname() == key


async def test_clients_of_one_pool_share_its_connection(server: Valkey, key: str) -> None:
    """A client for each request costs no connection, and closing it ends none."""
    pool = redis.asyncio.ConnectionPool.from_url(server.url, client_name=key)
    for _ in range(10):
        client = Redis(connection_pool=pool)
        await client.incr(key)
        await client.aclose()
    assert connections(server, key) == 1
    await pool.aclose()
    await eventually(lambda: connections(server, key) == 0)


async def test_a_restart_is_bridged_by_the_retry_policy(key: str) -> None:
    """Commands and pipelines issued after a restart, or during it, succeed once the server is back."""
    with embedded.valkey() as own:
        async with ours(own, retry=Retry(ConstantBackoff(0.1), 300)) as client:
            assert await client.set(key, "1")
            own.kill()
            late = asyncio.create_task(client.get(key))
            await asyncio.to_thread(own.restart)
            assert await late is None
            assert await client.incr(key) == 1
            assert await client.pipeline().incr(key).execute() == [2]


async def test_a_server_that_is_gone(key: str) -> None:
    """Without retries, a server that is gone is a ConnectionError at once, even for a new client."""
    with embedded.valkey() as own:
        async with ours(own, retry=NEVER) as client:
            await client.set(key, "1")
            own.kill()
            for _ in range(3):
                with pytest.raises(RedisConnectionError):
                    await client.get(key)
            with pytest.raises(RedisConnectionError):
                await client.pipeline().get(key).execute()
        async with ours(own, retry=NEVER) as client:
            with pytest.raises(RedisConnectionError, match="Error 111 connecting to"):
                await client.get(key)


async def test_a_silent_server_is_a_timeout(key: str) -> None:
    """After `socket_timeout` without an answer, every command in flight raises redis-py's TimeoutError."""
    with embedded.valkey() as own:
        async with ours(own, retry=NEVER, socket_timeout=2) as client:
            await client.set(key, "1")
            own.pause()
            try:
                calls = (client.incr(key), client.set(key, "2"), client.pipeline().incr(key).execute())
                failures = await asyncio.gather(*calls, return_exceptions=True)
            finally:
                own.resume()
            assert [type(failure) for failure in failures] == [RedisTimeoutError] * 3


async def test_chosen_errors_are_retried(server: Valkey, key: str) -> None:
    """`retry_on_error` holds for errors of the server, too."""
    retry = Retry(NoBackoff(), 2)
    async with ours(server, retry=retry, retry_on_error=[ResponseError]) as client:
        script = "if redis.call('INCR', KEYS[1]) < 3 then return redis.error_reply('ERR no') end return 7"
        assert await client.eval(script, 1, key) == 7


async def test_wrong_passwords_are_authentication_errors(server: Valkey, key: str) -> None:
    """What the handshake refuses is redis-py's error."""
    host, port = server.url.rpartition("@")[2].partition("/")[0].split(":")
    async with Redis(host=host, port=int(port), password="wrong", retry=NEVER) as client:
        with pytest.raises(redis.exceptions.AuthenticationError):
            await client.get(key)
