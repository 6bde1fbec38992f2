"""Connections that threads drive themselves: what happens when they end, hang or are interrupted."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from ephemera import OutcomeUnknown, Script, Unavailable, blocking, embedded, fixed
from ephemera.blocking import BlockingStore
from ephemera.embedded import Valkey
from ephemera.errors import StoreClosed
from ephemera.keyspace import Catalogue

CATALOGUE = Catalogue("direct")
NUMBER = CATALOGUE.counter("direct:{name}", lifetime=fixed(hours=1), purpose="A counter")
TEXT = CATALOGUE.value("direct:text:{name}", str, lifetime=fixed(hours=1), purpose="A text")


@pytest.fixture
def own_server() -> Iterator[Valkey]:
    """A server of the test's own."""
    with embedded.valkey() as started:
        yield started


@pytest.fixture
def store(own_server: Valkey) -> Iterator[BlockingStore]:
    """A store on it, patient with a busy machine."""
    with blocking.connect(f"{own_server.url}?timeout=2", CATALOGUE) as opened:
        yield opened


def direct_ids(store: BlockingStore) -> list[str]:
    """The ids of the direct connections: CLIENT goes over the loop's."""
    own = f"id={store.call('CLIENT', 'ID')} "
    lines = store.call("CLIENT", "LIST").decode().splitlines()
    return [line.split()[0][3:] for line in lines if "name=ephemera" in line and not line.startswith(own)]


def test_a_thread_opens_one_and_keeps_using_it(store: BlockingStore) -> None:
    """Calls one after the other, of commands and of accessors, use the same connection."""
    store.call("SET", "a", "1")
    [first] = direct_ids(store)
    number = store.accessor(NUMBER)
    assert [store.complete(number.add(name="a")) for _ in range(3)] == [1, 2, 3]
    assert store.call("GET", "a") == b"1"
    assert direct_ids(store) == [first]


def test_a_read_survives_the_end_of_its_connection(store: BlockingStore) -> None:
    """It is repeated on the loop's connection."""
    store.call("SET", "a", "1")
    for client in direct_ids(store):
        store.call("CLIENT", "KILL", "ID", client)
    assert store.call("GET", "a") == b"1"


def test_a_write_on_a_connection_that_ended_has_an_unknown_outcome(store: BlockingStore) -> None:
    """The caller decides whether to repeat it; the next call has another connection."""
    store.call("SET", "a", "1")
    for client in direct_ids(store):
        store.call("CLIENT", "KILL", "ID", client)
    with pytest.raises(OutcomeUnknown):
        store.call("INCR", "a")
    assert store.call("INCR", "a") in (2, 3)


def test_an_idle_connection_is_looked_at_before_it_is_used(store: BlockingStore) -> None:
    """One that the server closed in the meantime is replaced, and a write fails for no reason of its own."""
    store.call("SET", "a", "1")
    for client in direct_ids(store):
        store.call("CLIENT", "KILL", "ID", client)
    time.sleep(0.6)  # what counts as idle
    assert store.call("INCR", "a") == 2


def test_a_script_that_the_server_has_forgotten_is_sent_again(store: BlockingStore) -> None:
    """Also in a batch."""
    number = store.accessor(NUMBER)
    store.complete(number.add(name="a"))
    store.call("SCRIPT", "FLUSH")
    assert store.complete(number.add(name="a")) == 2
    store.call("SCRIPT", "FLUSH")
    assert store.complete(number.add_many([({"name": "a"}, 1), ({"name": "b"}, 5)])) == [3, 5]
    script = Script("direct_echo", "return ARGV[1]")
    assert store.call("EVALSHA", script.sha, 0, "x") == b"x"


def test_a_batch_is_one_write(store: BlockingStore) -> None:
    """Reads of many keys come back in order, and an error of one is raised."""
    text = store.accessor(TEXT)
    store.complete(text.put_many([({"name": f"k{i}"}, str(i)) for i in range(500)]))
    found = store.complete(text.get_many([{"name": f"k{i}"} for i in range(501)]))
    assert found == [*map(str, range(500)), None]


def test_a_server_that_hangs_fails_the_call_in_time(own_server: Valkey) -> None:
    """A read is `Unavailable` and a write `OutcomeUnknown`, after the URL's timeout."""
    with blocking.connect(f"{own_server.url}?timeout=0.5", CATALOGUE) as store:
        store.call("SET", "a", "1")
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises((OutcomeUnknown, Unavailable)):
                store.call("INCR", "a")
            assert 0.3 < time.monotonic() - began < 60
            with pytest.raises(Unavailable):
                store.call("GET", "a")
        finally:
            os.kill(own_server.pid, signal.SIGCONT)


def test_closing_ends_a_call_that_waits(own_server: Valkey) -> None:
    """The thread that waits for a reply gets `StoreClosed`."""
    store = blocking.connect(f"{own_server.url}?timeout=30", CATALOGUE)
    store.call("SET", "a", "1")
    os.kill(own_server.pid, signal.SIGSTOP)
    problems: list[BaseException] = []

    def work() -> None:
        try:
            store.call("INCR", "a")
        except StoreClosed as problem:
            problems.append(problem)

    try:
        thread = threading.Thread(target=work)
        thread.start()
        pool = store.running().direct["cache"]
        while pool._idle:  # until it has taken the connection
            time.sleep(0.001)
        pool.close()
        thread.join(60)
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    store.close()
    assert len(problems) == 1


def test_a_server_that_is_gone_fails_every_call() -> None:
    """The first call may find the old connection; all later ones fail at once."""
    with embedded.valkey() as server:
        store = blocking.connect(f"{server.url}?timeout=2")
        store.call("SET", "a", "1")
    with pytest.raises((Unavailable, OutcomeUnknown)):
        store.call("SET", "a", "2")
    with pytest.raises(Unavailable):
        store.call("GET", "a")
    store.close()
