"""Accessors in synchronous code: every kind of key, from any thread, and after a fork."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ephemera import Catalogue, UndeclaredKeyspace, deadline, sync
from ephemera.embedded import Valkey
from ephemera.errors import DeadlineExceeded, ServerError, SyncCallInEventLoop, WrongFields
from ephemera.sync import SyncStore
from ephemera.wire import Script
from tests.sync.shop import (
    CATALOGUE,
    CHANNEL,
    COUNTER,
    FLAG,
    HASH,
    LIST,
    MAPPING,
    RENEWED,
    SET,
    SORTED,
    STREAM,
    VALUE,
    Account,
)


@pytest.fixture
def store(server: Valkey) -> Iterator[SyncStore]:
    """A synchronous store on the shared server."""
    with sync.connect(server.url, CATALOGUE) as opened:
        yield opened


def test_values_flags_and_counters(store: SyncStore, key: str) -> None:
    """What was put is read back, in batches too."""
    assert store[VALUE].put(Account("bob"), name=key)
    assert store[VALUE].get(name=key) == Account("bob")
    assert store[VALUE].get_many([{"name": key}, {"name": "none"}]) == [Account("bob"), None]
    assert not store[VALUE].put_if_absent(Account(), name=key)
    assert store[VALUE].put_many([({"name": f"{key}{i}"}, Account(str(i))) for i in range(3)]) == 3
    assert store[VALUE].delete(name=key)
    assert store[FLAG].set(name=key)
    assert store[FLAG].are_set([{"name": key}, {"name": "none"}]) == [True, False]
    assert [store[COUNTER].add(2, name=key), store[COUNTER].add(name=key)] == [2, 3]
    assert store[COUNTER].get(name=key) == 3


def test_a_read_renews_a_sliding_lifetime(store: SyncStore, key: str) -> None:
    """The value is found under any id, and its TTL is full again."""
    for name in (key, f"{key} ü"):
        store[RENEWED].put("v", name=name)
        store.call("PEXPIRE", store[RENEWED].key(name=name), 60_000)
        assert store[RENEWED].get(name=name) == "v"
        assert store.call("PTTL", store[RENEWED].key(name=name)) > 3_000_000


def test_hashes_and_mappings(store: SyncStore, key: str) -> None:
    """Records and named entries."""
    assert store[HASH].put(Account("bob"), name=key)
    assert store[HASH].update({"theme": "dark"}, name=key)
    assert store[HASH].get(name=key) == Account("bob", "dark")
    assert store[MAPPING].put({"a": 1, "b": 2}, name=key)
    assert store[MAPPING].increment("a", 4, name=key) == 5
    assert store[MAPPING].get_all(name=key) == {"a": 5, "b": 2}


def test_lists_sets_and_streams(store: SyncStore, key: str) -> None:
    """Items, members and entries."""
    assert store[LIST].push(1, 2, 3, name=key) == 3
    assert store[LIST].pop(name=key) == 1
    assert store[SET].add("a", "b", name=key) == 2
    assert store[SET].members(name=key) == {"a", "b"}
    store[SORTED].add({"a": 1.0, "b": 2.0}, name=key)
    assert store[SORTED].highest(1, name=key) == [("b", 2.0)]
    entry = store[STREAM].append(Account("eve"), name=key)
    assert store[STREAM].newest(1, name=key) == [(entry, Account("eve"))]


def test_messages_arrive_in_a_for_loop(store: SyncStore, key: str) -> None:
    """A subscription is a `with` block and an iterator."""
    with store.subscribe(store[CHANNEL].name(name=key)) as messages:
        store[CHANNEL].publish("hello", name=key)
        message = next(iter(messages))
    assert store[CHANNEL].decode(message.data) == "hello"


def test_scripts_run(store: SyncStore, key: str) -> None:
    """A script runs by its digest, even when the server does not know it yet."""
    script = Script(key, f"return {{KEYS[1], ARGV[1], '{key}'}}")
    assert store.run(script, [key], ["x"]) == [key.encode(), b"x", key.encode()]


def test_what_an_accessor_is(store: SyncStore, key: str) -> None:
    """It has the docstrings and signatures of the async one, its keyspace and its counts."""
    accessor = store[VALUE]
    assert accessor is store[VALUE]
    assert accessor.keyspace is VALUE
    assert accessor.key(name=key) == f"sync:value:{key}"
    before = accessor.stats.hits
    accessor.put(Account(), name=key)
    accessor.get(name=key)
    assert accessor.stats.hits == before + 1
    assert "or None when the key is absent" in (type(accessor).get.__doc__ or "")
    assert "fields" in inspect.signature(accessor.get).parameters


def test_errors_are_raised_where_the_call_is(store: SyncStore, key: str) -> None:
    """Wrong types on the server, undeclared keyspaces, and deadlines that have passed."""
    store.call("RPUSH", store[COUNTER].key(name=key), "item")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        store[COUNTER].add(name=key)
    assert store[COUNTER].stats.errors == 1
    store.call("RPUSH", store[VALUE].key(name=key), "item")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        store[VALUE].get(name=key)
    assert store[VALUE].stats.errors == 1
    with pytest.raises(WrongFields, match="name"):
        store[VALUE].get(key)  # type: ignore[arg-type]
    store[VALUE].delete(name=key)
    other = Catalogue("other").counter("other", lifetime=COUNTER.lifetime, purpose="Not in the store")
    with pytest.raises(UndeclaredKeyspace):
        store[other]
    with pytest.raises(DeadlineExceeded), deadline(0):
        store[VALUE].get(name=key)
    with deadline(30):
        assert store[VALUE].get(name=key) is None
    assert store[VALUE].get(name=key) is None


async def test_an_accessor_in_an_event_loop_is_refused(server: Valkey) -> None:
    """It raises, where it would block the loop."""
    store = sync.connect(server.url, CATALOGUE)
    with pytest.raises(SyncCallInEventLoop):
        store[VALUE].get(name="any")
    store.close()


def test_many_threads_share_an_accessor(store: SyncStore, key: str) -> None:
    """Each gets its own replies."""

    def work(thread: int) -> bool:
        name = f"{key}{thread}"
        return all(
            store[VALUE].put(Account(f"{thread}:{i}"), name=name)
            and store[VALUE].get(name=name) == Account(f"{thread}:{i}")
            for i in range(50)
        )

    with ThreadPoolExecutor(24) as pool:
        assert all(pool.map(work, range(24)))


def test_an_accessor_works_after_a_fork(store: SyncStore, key: str) -> None:
    """What `store[X]` returned in the parent is used in the child, and by the parent after that."""
    accessor = store[COUNTER]
    accessor.add(name=key)
    store[VALUE].put(Account("bob"), name=key)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            total = [accessor.add(name=key) for _ in range(50)][-1]
            status = 0 if total == 51 and store[VALUE].get(name=key) == Account("bob") else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert accessor.add(name=key) == 52
