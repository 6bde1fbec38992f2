"""The identity guard: a store works on the server that is marked with its name, and on no other."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shutil import which

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey, free_ports
from ephemera.errors import (
    CannotConnect,
    ConnectionFailed,
    InvalidUrl,
    InvalidValue,
    OverlappingPatterns,
    WrongServer,
)
from ephemera.keyspace import (
    RESERVED,
    SERVER_IDENTITY,
    Catalogue,
    Store,
    connect,
    fixed,
    read_identity,
    write_identity,
)
from ephemera.keyspace import _server_identity as identity
from ephemera.wire import open_client
from tests.wire.conditions import answered

GRAPH_MODULE = """
int RedisModule_OnLoad(void **context) {
    int (*find)(const char *, void *) = (int (*)(const char *, void *)) context[0];
    int (*name_it)(void *, const char *, int, int);
    find("RedisModule_SetModuleAttribs", &name_it);
    name_it(context, "Graph", 1, 1);
    return 0;
}
"""
LOGGED = {"appendonly": "yes"}


@pytest.fixture
def ours() -> Iterator[Valkey]:
    """A server marked as `slides-cache`, which loses everything when killed."""
    with embedded.valkey() as running:
        running.ask("SET", SERVER_IDENTITY.key(), "slides-cache")
        yield running


def marked_folder(folder: Path, name: str) -> Path:
    """The data of a server that is marked with a name from the start."""
    with embedded.valkey(data=folder, config=LOGGED) as running:
        running.ask("SET", SERVER_IDENTITY.key(), name)
    return folder


async def refusal(store: Store) -> str:
    """The reason why the store stays down; writes must fail before and after it is known."""
    while True:
        with pytest.raises(ConnectionFailed) as failed:
            await store.call("SET", "a", 1, "EX", 60)
        if "WRONGSERVER" in str(failed.value):
            return str(failed.value)
        await asyncio.sleep(0.005)


async def test_a_store_opens_on_the_server_with_its_name(ours: Valkey) -> None:
    """With the right mark everything works as without a guard."""
    async with connect(ours.url, identity="slides-cache") as store:
        assert await store.call("SET", "a", 1, "EX", 60) == b"OK"


@pytest.mark.standalone("a cluster has one database, and it uses another")
async def test_an_unmarked_server_is_refused_and_stays_unmarked(server: Valkey) -> None:
    """A store does not mark a server by itself: the error says how to do it."""
    database = f"{server.url}/9"
    with pytest.raises(WrongServer, match="has no mark, and 'slides' was expected") as refused:
        async with connect(database, identity="slides"):
            pytest.fail("it must not open")
    assert (refused.value.expected, refused.value.found) == ("slides", None)
    assert str(refused.value).endswith("ephemera mark --url URL --name slides")
    async with open_client(database) as client:
        assert await client.call("DBSIZE") == 0


async def test_a_server_with_another_name_is_refused(ours: Valkey) -> None:
    """The error names the mark that was found, the one expected, and both solutions."""
    with pytest.raises(WrongServer) as refused:
        async with connect(ours.url, identity="feed"):
            pytest.fail("it must not open")
    assert (refused.value.found, refused.value.expected) == ("slides-cache", "feed")
    assert str(refused.value) == (
        f"127.0.0.1:{ours.port} is marked as 'slides-cache', not as 'feed'; correct the URL, or if the "
        "server now belongs to this service: ephemera mark --url URL --name feed --force"
    )


async def test_a_store_without_an_identity_refuses_a_marked_server(ours: Valkey) -> None:
    """A marked server belongs to a service: a store without its name is refused, and the error names it."""
    with pytest.raises(WrongServer, match="is marked as 'slides-cache', and the store was opened") as refused:
        async with connect(ours.url):
            pytest.fail("it must not open")
    assert (refused.value.found, refused.value.expected) == ("slides-cache", None)
    assert str(refused.value).endswith("identity='slides-cache'")


async def test_a_user_who_may_not_read_the_mark_may_connect(ours: Valkey) -> None:
    """A user whose ACL allows only its own keys can connect without an identity."""
    ours.ask("ACL", "SETUSER", "narrow", "on", ">secret", "~mine:*", "+@all")
    async with connect(f"redis://narrow:secret@127.0.0.1:{ours.port}") as store:
        assert await store.call("SET", "mine:a", 1, "EX", 60) == b"OK"


async def test_each_role_has_its_own_server_and_name(ours: Valkey, tmp_path: Path) -> None:
    """Swapped URLs are detected when the servers have different names; one name may be used for both."""
    with embedded.valkey() as queue:
        queue.ask("SET", SERVER_IDENTITY.key(), "slides-queue")
        opening = partial(connect, identity="slides-cache", queue_identity="slides-queue")
        async with opening(ours.url, queue_url=queue.url):
            pass
        with pytest.raises(WrongServer, match="is marked as 'slides-queue', not as 'slides-cache'"):
            async with opening(queue.url, queue_url=ours.url):
                pytest.fail("it must not open")
        with pytest.raises(WrongServer, match="is marked as 'slides-queue', not as 'slides-cache'"):
            async with connect(ours.url, queue_url=queue.url, identity="slides-cache"):
                pytest.fail("it must not open")
    with pytest.raises(InvalidUrl, match="give its address as queue_url"):
        async with connect(ours.url, queue_identity="slides-queue"):
            pytest.fail("it must not open")


async def test_a_server_that_lost_everything_is_marked_again(ours: Valkey) -> None:
    """A running store accepts a cache that restarts empty, and marks it again."""
    async with connect(ours.url, identity="slides-cache") as store:
        ours.kill()
        ours.restart()
        await answered(lambda: store.call("SET", "a", 1, "EX", 60))
        assert await read_identity(store.client()) == "slides-cache"


async def test_after_a_reconnection_a_wrong_server_gets_no_command(ours: Valkey, tmp_path: Path) -> None:
    """While a server with another name has the address, calls fail."""
    marked_folder(tmp_path / "graph", "graph")
    marked_folder(tmp_path / "ours", "slides-cache")
    async with connect(ours.url, identity="slides-cache") as store:
        port = ours.port
        ours.stop()
        with embedded.valkey(
            port=port, password=ours.password, data=tmp_path / "graph", config=LOGGED
        ) as neighbour:
            assert "it is marked as 'graph', not as 'slides-cache'" in await refusal(store)
            assert neighbour.ask("DBSIZE") == 1
        with embedded.valkey(port=port, password=ours.password, data=tmp_path / "ours", config=LOGGED):
            await answered(lambda: store.call("SET", "a", 1, "EX", 60))


async def test_after_a_reconnection_keys_without_a_mark_are_refused(ours: Valkey, tmp_path: Path) -> None:
    """Only an empty database is accepted: one with keys and no mark gets no command."""
    with embedded.valkey(data=tmp_path, config=LOGGED) as neighbour:
        neighbour.ask("SET", "theirs", "1")
    async with connect(ours.url, identity="slides-cache") as store:
        port = ours.port
        ours.stop()
        with embedded.valkey(port=port, password=ours.password, data=tmp_path, config=LOGGED) as neighbour:
            assert "it holds keys and has no mark" in await refusal(store)
            assert neighbour.ask("DBSIZE") == 1


async def test_an_absent_server_is_checked_when_it_starts(tmp_path: Path) -> None:
    """A store that may start without its server still writes to no other server."""
    marked_folder(tmp_path, "graph")
    [port] = free_ports(1)
    async with connect(f"redis://:pw@127.0.0.1:{port}", required=False, identity="slides-cache") as store:
        with embedded.valkey(port=port, password="pw", data=tmp_path, config=LOGGED):
            assert "it is marked as 'graph', not as 'slides-cache'" in await refusal(store)


async def test_an_evicted_mark_is_restored(ours: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running store restores the mark after an eviction or a flush, and never overwrites another."""
    monkeypatch.setattr(identity, "_RESTORE_EVERY", 0.01)
    async with connect(ours.url, identity="slides-cache") as store:
        await store.call("FLUSHALL")
        while await read_identity(store.client()) is None:
            await asyncio.sleep(0.005)
        assert await read_identity(store.client()) == "slides-cache"
        await write_identity(store.client(), "feed", force=True)
        await asyncio.sleep(0.05)
        assert await read_identity(store.client()) == "feed"


@pytest.fixture
def graph_module(tmp_path: Path) -> str:
    """The path of a server module named Graph, as a graph database has."""
    compiler = which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build a server module with")
    source, module = tmp_path / "graph.c", tmp_path / "graph.so"
    source.write_text(GRAPH_MODULE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(module), str(source)], check=True)
    return str(module)


@pytest.mark.parametrize("name", ["slides-cache", None])
@pytest.mark.parametrize("required", [True, False])
async def test_an_unexpected_module_is_refused_unless_allowed(
    graph_module: str, name: str | None, required: bool
) -> None:
    """A graph database is refused, with or without an identity, even when it has the mark."""
    with embedded.valkey(config={"loadmodule": graph_module}) as graph:
        if name:
            graph.ask("SET", SERVER_IDENTITY.key(), name)
        with pytest.raises(WrongServer, match="has unexpected modules: Graph") as refused:
            async with connect(graph.url, identity=name, required=required):
                pytest.fail("it must not open")
        assert refused.value.modules == ("Graph",)
        async with connect(graph.url, identity=name, modules=["graph"]) as store:
            assert await store.call("SET", "a", 1, "EX", 60) == b"OK"


async def test_after_a_reconnection_a_graph_database_gets_no_command(graph_module: str) -> None:
    """Modules are checked at every connection: the store stays down on a server with unexpected ones."""
    with embedded.valkey() as ours:
        async with connect(ours.url) as store:
            port = ours.port
            ours.stop()
            with embedded.valkey(
                port=port, password=ours.password, config={"loadmodule": graph_module}
            ) as neighbour:
                while True:
                    with pytest.raises(ConnectionFailed) as failed:
                        await store.call("SET", "a", 1, "EX", 60)
                    if "has unexpected modules: Graph" in str(failed.value):
                        break
                    await asyncio.sleep(0.005)
                assert neighbour.ask("DBSIZE") == 0


async def test_a_cluster_has_one_mark(cluster: Cluster) -> None:
    """The whole cluster is identified by one key, and every node is checked for modules."""
    async with open_client(cluster.url) as client:
        await write_identity(client, "league", force=True)
    async with connect(cluster.url, identity="league") as store:
        assert await store.call("SET", "identity-test", 1, "EX", 60) == b"OK"
    with pytest.raises(WrongServer, match="is marked as 'league', not as 'feed'"):
        async with connect(cluster.url, identity="feed"):
            pytest.fail("it must not open")
    async with open_client(cluster.url) as client:
        await client.call("DEL", SERVER_IDENTITY.key())


@pytest.mark.standalone("a cluster has one database, and it uses another")
async def test_marking_is_atomic_and_names_are_plain(server: Valkey) -> None:
    """Of many who mark at once one succeeds; a name with other characters is refused."""
    async with open_client(f"{server.url}/8") as client:
        found = await asyncio.gather(*(write_identity(client, f"store-{n}") for n in range(50)))
        assert found.count(None) == 1
        assert set(found) - {None} == {await read_identity(client)}
        for name in ("", "two words", "x" * 65, "a\nb"):
            with pytest.raises(InvalidValue, match="ephemera:identity"):
                await write_identity(client, name)


async def test_the_mark_is_a_reserved_key(server: Valkey) -> None:
    """The audit knows the mark, and a store with a catalogue that overlaps it cannot be opened."""
    assert RESERVED.classify(b"ephemera:identity") is SERVER_IDENTITY
    greedy = Catalogue("greedy")
    greedy.value("ephemera:{name}", str, lifetime=fixed(hours=1), purpose="x")
    with pytest.raises(OverlappingPatterns, match="ephemera:identity"):
        async with connect(server.url, greedy):
            pytest.fail("it must not open")
    async with connect(server.url, RESERVED) as store:
        assert await store[SERVER_IDENTITY].get() is None


async def test_a_cluster_that_is_down_cannot_be_identified() -> None:
    """With an identity, a cluster that is down is refused, even with `required=False`."""
    with pytest.raises(CannotConnect, match="cannot be identified"):
        async with connect("redis+cluster://127.0.0.1:1", identity="mine", required=False):
            pass
