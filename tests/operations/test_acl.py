"""Least privilege: the generated user can do everything a service does, and nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import ephemera
from ephemera import embedded
from ephemera.errors import CannotConnect, InvalidValue, ServerError
from ephemera.keyspace import SERVER_IDENTITY, Catalogue, connect, fixed, permanent, write_identity
from ephemera.operations.audit import audit
from ephemera.operations.configuration import access_rules
from ephemera.operations.configuration._acl import ANY_KEY, BY_TYPE, CONNECTION, IDENTITY, SCRIPTS
from ephemera.operations.health import check_server, estimate_capacity
from ephemera.operations.inspect import dead_letters, held_locks, pending_events, stream_infos
from ephemera.operations.metrics import StoreMetrics
from ephemera.patterns.events import Events
from ephemera.patterns.locks import Locks, Semaphores
from ephemera.patterns.sessions import Sessions
from ephemera.wire import Arg, open_client
from tests.keyspace.every_kind import KEYSPACES, OPERATIONS
from tests.keyspace.every_kind import catalogue as every_kind
from tests.least_privilege import admitted
from tests.wire.conditions import answered
from tests.wire.debian_redis import BINARY, DebianRedis

SOURCE = Path(ephemera.__file__).parent

news = Catalogue("news")
COUNT = news.counter("news:count:{id}", lifetime=fixed(hours=1), purpose="x")
NEWS = news.channel("news:published:{id}", str, purpose="x")
QUEUE = news.list("news:jobs", str, lifetime=permanent(reason="workers"), role="queue", purpose="x")


class Place(msgspec.Struct):
    name: str


watched = Catalogue("watched")
PLACE = watched.hash("watched:place:{id}", Place, lifetime=fixed(hours=1), purpose="x")
EVENTS = Events(watched, "watched:events", Place, purpose="x")
LEADING = Locks(watched, "watched:leading:{id}", lease=timedelta(seconds=30), purpose="x")
POOL = Semaphores(watched, "watched:pool:{id}", permits=2, lease=timedelta(seconds=30), purpose="x")


@pytest.fixture(scope="module", params=["valkey", "redis7", "cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server of each supported kind that no other file uses, because an audit sees every key on it."""
    if request.param == "valkey":
        with embedded.valkey() as valkey:
            yield valkey.url
    elif request.param == "cluster":
        with embedded.cluster(node_timeout=60_000) as cluster:
            yield cluster.url
    elif not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    else:
        with DebianRedis() as redis:
            yield redis.url


async def test_every_kind_and_lifetime_works_as_the_user(url: str, key: str) -> None:
    """Writes, changes, reads and deletions are permitted on each kind of server."""
    async with admitted(url, every_kind) as user:
        async with connect(user.url, every_kind) as store:
            for (kind, lifetime), space in KEYSPACES.items():
                access, operations = store[space], OPERATIONS[kind]
                until = {"until": 4e9} if lifetime == "until" else {}
                for operation in filter(None, (operations.write, operations.put, operations.change)):
                    await operation(access, id=key, **until)
                await operations.read(access, id=key)
                assert await access.exists(id=key)
                assert await access.delete(id=key)
        assert await user.denied() == []


async def test_channels_tracking_and_identity_work_as_the_user(url: str, key: str) -> None:
    """Publishing, subscribing, invalidations and the identity check need no further permissions."""
    async with admitted(url, news, purposes=("service", "tracking")) as user, open_client(url) as admin:
        await write_identity(admin, "acl-test", force=True)
        async with connect(user.url, news, identity="acl-test") as store:
            await store.track(lambda keys: None, ["news:"])
            async with store.subscribe(NEWS.key(id=key)) as messages:
                await store[NEWS].publish("hello", id=key)
                assert store[NEWS].decode((await anext(messages)).data) == "hello"
        await admin.call("DEL", SERVER_IDENTITY.key())
        assert await user.denied() == []


async def test_a_restarted_server_is_marked_again_as_the_user() -> None:
    """The commands that the identity check sends on a new connection are permitted."""
    with embedded.valkey() as server:
        server.ask("SET", SERVER_IDENTITY.key(), "acl-test")
        async with admitted(server.url, news) as user:
            async with connect(user.url, news, identity="acl-test") as store:
                server.ask("FLUSHALL")
                server.ask("CLIENT", "KILL", "USER", user.name)
                await answered(lambda: store[COUNT].add(id=1))
                assert server.ask("GET", SERVER_IDENTITY.key()) == "acl-test"
            assert await user.denied() == []


REFUSED: tuple[tuple[Arg, ...], ...] = (
    ("SET", "stranger:1", "x"),
    ("GET", "stranger:1"),
    ("RENAME", COUNT.key(id=1), "stranger:1"),
    ("EVAL", "return redis.call('GET', KEYS[1])", 1, "stranger:1"),
    ("EVAL", "return redis.call('FLUSHALL')", 1, COUNT.key(id=1)),
    ("PUBLISH", "stranger", "x"),
    ("PERSIST", COUNT.key(id=1)),
    ("HSET", COUNT.key(id=1), "no", "hashes"),
    ("SORT", QUEUE.key(), "BY", "stranger:*"),
)
REFUSED_BY_EACH_NODE: tuple[tuple[Arg, ...], ...] = (
    ("FLUSHALL",), ("FLUSHDB",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("SCAN", 0), ("ACL", "LIST"),
    ("INFO",), ("SHUTDOWN", "NOSAVE"), ("CLIENT", "LIST"), ("SCRIPT", "FLUSH"), ("RANDOMKEY",),
    ("SWAPDB", 0, 1), ("REPLICAOF", "NO", "ONE"), ("FUNCTION", "LIST"),
)  # fmt: skip


async def test_everything_else_is_refused(url: str) -> None:
    """Other keys and channels, even from scripts, and server commands are refused."""
    async with admitted(url, news) as user:
        async with open_client(user.url) as client:
            calls = [client.call(*words) for words in REFUSED]
            calls += [client.nodes()[0].call(*words) for words in REFUSED_BY_EACH_NODE]
            for call in calls:
                with pytest.raises(ServerError, match=r"permissions|can't run this command"):
                    await call
        assert await user.denied() != []


async def test_server_metrics_need_the_metrics_purpose(url: str) -> None:
    """A user for metrics shows server figures; without that purpose INFO is refused."""
    for purposes in (("service",), ("service", "metrics")):
        async with admitted(url, news, purposes=purposes) as user:
            async with connect(user.url, news) as store:
                metrics = StoreMetrics(store, every=timedelta(hours=1))
                await metrics.sample()
                shown = b"ephemera_server_memory_bytes{" in metrics.render()[0]
            assert shown == ("metrics" in purposes)
            assert all("info" in refusal for refusal in await user.denied())
            assert bool(await user.denied()) != shown


async def test_the_monitoring_user_reads_everything_and_writes_nothing(url: str, key: str) -> None:
    """Audit, doctor, capacity and the lists work for the monitoring user; writes are refused."""
    async with connect(url, watched) as store, open_client(url) as admin:
        await admin.call("SET", f"stranger:{key}", "x", "EX", 60)
        await store[PLACE].put(Place("here"), id=key)
        await store[EVENTS].publish(Place("there"))
        async with (
            admitted(url, watched, purposes=("monitoring",)) as user,
            store[LEADING].hold(id=key),
            store[POOL].hold(id=key),
        ):
            report = await audit(user.url, [watched])
            assert {space.pattern: space.keys for space in report.keyspaces}["watched:place:{id}"] == 1
            assert report.unknown.keys >= 1
            assert not [each for each in report.findings if each.kind in ("undecodable", "incomplete")]
            assert (await check_server(user.url, [watched], probes=3)).servers[0].version
            assert (await estimate_capacity(user.url, [watched], observe=0.01, budget=5)).used
            assert [(each.key, each.mode) for each in await held_locks(user.url, watched)] == [
                (LEADING.keyspace.key(id=key), "lock"),
                (POOL.keyspace.key(id=key), "permit 0"),
            ]
            assert [each.length for each in await stream_infos(user.url, watched)] == [1]
            assert await pending_events(user.url, watched) == []
            assert await dead_letters(user.url, watched) == []
            assert [each for each in await user.denied() if "no-touch" not in each] == []
            async with open_client(user.url) as client:
                calls = [client.call(*words) for words in _not_for_watchers(key)]
                node = client.nodes()[0]
                calls += [
                    node.call(*words) for words in REFUSED_BY_EACH_NODE if words[0] not in ("INFO", "SCAN")
                ]
                for call in calls:
                    with pytest.raises(ServerError, match=r"permissions|can't run this command"):
                        await call
        await admin.call("DEL", PLACE.key(id=key))
        await admin.call("DEL", EVENTS.keyspace.key())


def _not_for_watchers(key: str) -> tuple[tuple[Arg, ...], ...]:
    own = PLACE.key(id=key)
    return (
        ("HSET", own, "name", "there"), ("DEL", own), ("PEXPIRE", own, 1), ("EVAL", "return 1", 1, own),
        ("GET", f"stranger:{key}"), ("DEL", f"stranger:{key}"), ("PUBLISH", "watched", "x"),
    )  # fmt: skip


def test_an_unknown_purpose_is_refused() -> None:
    """A typo does not create a user with too few or too many permissions."""
    for wrong in ((), ("monitor",), ("service", "everything")):
        with pytest.raises(InvalidValue, match="service, metrics, monitoring, tracking"):
            access_rules(news, "x", purposes=wrong)


def test_a_role_has_its_own_keys() -> None:
    """The user of one role's server gets neither keys nor commands of the other role."""
    queue, cache = access_rules(news, "q", role="queue"), access_rules(news, "c", role="cache")
    assert queue.keys == ("ephemera:identity", "news:jobs")
    assert cache.keys == ("ephemera:identity", "news:count:*")
    assert (queue.channels, cache.channels) == ((), ("news:published:*",))
    assert "rpush" in queue.commands
    assert not {"rpush", "lrange"} & set(cache.commands)
    assert not {"incrby", "publish"} & set(queue.commands)


async def test_the_line_fits_an_acl_file(tmp_path: Path) -> None:
    """A server loads the printed line and accepts the password behind the digest."""
    digest = hashlib.sha256(b"s3cr3t").hexdigest()
    rules = access_rules(news, "news-service", password_sha256=digest)
    (tmp_path / "users.acl").write_text(f"user default on nopass ~* &* +@all\n{rules.line()}\n")
    with embedded.valkey(password="", config={"aclfile": str(tmp_path / "users.acl")}) as guarded:
        place = f"127.0.0.1:{guarded.port}"
        async with connect(f"redis://news-service:s3cr3t@{place}", news) as store:
            assert await store[COUNT].add(id=1) == 1
        with pytest.raises(CannotConnect, match="user name or password is wrong"):
            async with connect(f"redis://news-service:other@{place}", news):
                pytest.fail("it must not open")
    with pytest.raises(InvalidValue):
        access_rules(news, "two words")


def test_tagged_keys_and_marks_are_covered() -> None:
    """The globs of tagged patterns keep their braces, and no value acts as a glob."""
    tagged = Catalogue("tagged")
    space = tagged.counter("job:{id}:{part}.x", hash_tag="id", lifetime=fixed(hours=1), purpose="x")
    assert access_rules(tagged, "x").keys == ("ephemera:identity", "job:{*}:*.x")
    assert space.key(id="*", part="*") == "job:{%2A}:%2A.x"


def test_sessions_exclude_those_of_a_longer_pattern() -> None:
    """Their ids have one length, so that one service's `session:*` is not another's `session:{user}:{id}`."""
    both = Catalogue("both", prefix="shop:")
    Sessions(both, "session:{id}", Place, user="name", lifetime=fixed(hours=1), purpose="x")
    assert f"shop:session:{'?' * 46}" in access_rules(both, "x").keys
    watcher = access_rules(both, "x", purposes=("monitoring",))
    assert f"shop:session:{'?' * 46}" in watcher.readable


def test_every_command_in_a_script_is_in_the_rules() -> None:
    """Every command that a Lua script calls is in the rules."""
    groups = [ANY_KEY, CONNECTION, IDENTITY, SCRIPTS, *BY_TYPE.values()]
    allowed = {command for group in groups for command in group.split()}
    scripts = sorted(SOURCE.rglob("lua/*.lua"))
    called = {
        (name.lower(), script.name)
        for script in scripts
        for name in re.findall(r"redis\.p?call\(\s*['\"](\w+)", script.read_text(encoding="utf-8"))
    }
    assert called
    assert [use for use in sorted(called) if use[0] not in allowed] == []
