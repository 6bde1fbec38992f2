"""The identity guard: a store works on the server that carries its name, and on no other."""

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
    """A server that is marked as `slides-cache`, and forgets everything when killed."""
    with embedded.valkey() as running:
        running.ask("SET", SERVER_IDENTITY.key(), "slides-cache")
        yield running


def marked_folder(folder: Path, name: str) -> Path:
    """The data of a server that is marked with a name from its first moment on."""
    with embedded.valkey(data=folder, config=LOGGED) as running:
        running.ask("SET", SERVER_IDENTITY.key(), name)
    return folder


async def refusal(store: Store) -> str:
    """Why the store stays down; writes must fail until it has found out, and then."""
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
async def test_an_unmarked_server_is_refused_and_left_as_it_is(server: Valkey) -> None:
    """A store with a name does not adopt a server by itself: the error says how to mark it."""
    database = f"{server.url}/9"
    with pytest.raises(WrongServer, match="has no mark, and 'slides' was expected") as refused:
        async with connect(database, identity="slides"):
            pytest.fail("it must not open")
    assert (refused.value.expected, refused.value.found) == ("slides", None)
    assert str(refused.value).endswith("ephemera mark --url URL --name slides")
    async with open_client(database) as client:
        assert await client.call("DBSIZE") == 0


async def test_anothers_server_is_refused_by_name(ours: Valkey) -> None:
    """The error names the mark that was found, the one expected, and both ways out."""
    with pytest.raises(WrongServer) as refused:
        async with connect(ours.url, identity="feed"):
            pytest.fail("it must not open")
    assert (refused.value.found, refused.value.expected) == ("slides-cache", "feed")
    assert str(refused.value) == (
        f"127.0.0.1:{ours.port} is marked as 'slides-cache', not as 'feed'; correct the URL, or if the "
        "server now belongs to this service: ephemera mark --url URL --name feed --force"
    )


async def test_a_store_without_a_name_keeps_off_a_marked_server(ours: Valkey) -> None:
    """A mark says that the server is somebody's: who cannot name it is refused, and told the name."""
    with pytest.raises(WrongServer, match="is marked as 'slides-cache', and the store was opened") as refused:
        async with connect(ours.url):
            pytest.fail("it must not open")
    assert (refused.value.found, refused.value.expected) == ("slides-cache", None)
    assert str(refused.value).endswith("identity='slides-cache'")


async def test_a_user_who_may_not_read_the_mark_is_held_by_its_acl(ours: Valkey) -> None:
    """Least privilege for keys of one's own is enough: the guard asks, and takes a refusal for an answer."""
    ours.ask("ACL", "SETUSER", "narrow", "on", ">secret", "~mine:*", "+@all")
    async with connect(f"redis://narrow:secret@127.0.0.1:{ours.port}") as store:
        assert await store.call("SET", "mine:a", 1, "EX", 60) == b"OK"


async def test_each_role_has_its_own_server_and_name(ours: Valkey, tmp_path: Path) -> None:
    """Swapped URLs are noticed when the two servers are marked apart, and one name may stand for both."""
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
    """A cache that restarts empty is taken back by the running store, with its mark."""
    async with connect(ours.url, identity="slides-cache") as store:
        ours.kill()
        ours.restart()
        await answered(lambda: store.call("SET", "a", 1, "EX", 60))
        assert await read_identity(store.client()) == "slides-cache"


async def test_after_a_reconnection_anothers_server_gets_no_command(ours: Valkey, tmp_path: Path) -> None:
    """When another server has taken the place, calls fail until the right one is back."""
    marked_folder(tmp_path / "graph", "graph")
    marked_folder(tmp_path / "ours", "slides-cache")
    async with connect(ours.url, identity="slides-cache") as store:
        port = ours.port
        ours.stop()
        with embedded.valkey(port=port, data=tmp_path / "graph", config=LOGGED) as neighbour:
            assert "it is marked as 'graph', not as 'slides-cache'" in await refusal(store)
            assert neighbour.ask("DBSIZE") == 1
        with embedded.valkey(port=port, data=tmp_path / "ours", config=LOGGED):
            await answered(lambda: store.call("SET", "a", 1, "EX", 60))


async def test_after_a_reconnection_keys_without_a_mark_are_somebodys(ours: Valkey, tmp_path: Path) -> None:
    """Only an empty database is taken for ours: one with keys and no mark gets no command."""
    with embedded.valkey(data=tmp_path, config=LOGGED) as neighbour:
        neighbour.ask("SET", "theirs", "1")
    async with connect(ours.url, identity="slides-cache") as store:
        port = ours.port
        ours.stop()
        with embedded.valkey(port=port, data=tmp_path, config=LOGGED) as neighbour:
            assert "it holds keys and has no mark" in await refusal(store)
            assert neighbour.ask("DBSIZE") == 1


async def test_an_absent_server_is_checked_when_it_comes(tmp_path: Path) -> None:
    """A store that may start without its server still does not write into a neighbour's."""
    marked_folder(tmp_path, "graph")
    [port] = free_ports(1)
    async with connect(f"redis://127.0.0.1:{port}", required=False, identity="slides-cache") as store:
        with embedded.valkey(port=port, data=tmp_path, config=LOGGED):
            assert "it is marked as 'graph', not as 'slides-cache'" in await refusal(store)


async def test_an_evicted_mark_is_put_back(ours: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running store restores the mark that an eviction or a flush took, and overwrites nobody's."""
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
    """The path of a server module that calls itself Graph, as a graph database has."""
    compiler = which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build a server module with")
    source, module = tmp_path / "graph.c", tmp_path / "graph.so"
    source.write_text(GRAPH_MODULE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(module), str(source)], check=True)
    return str(module)


@pytest.mark.parametrize("name", ["slides-cache", None])
@pytest.mark.parametrize("required", [True, False])
async def test_a_module_nobody_expects_is_refused_unless_told(
    graph_module: str, name: str | None, required: bool
) -> None:
    """A graph database is not taken for a cache, named or not, even when it carries the mark."""
    with embedded.valkey(config={"loadmodule": graph_module}) as graph:
        if name:
            graph.ask("SET", SERVER_IDENTITY.key(), name)
        with pytest.raises(WrongServer, match="has unexpected modules: Graph") as refused:
            async with connect(graph.url, identity=name, required=required):
                pytest.fail("it must not open")
        assert refused.value.modules == ("Graph",)
        async with connect(graph.url, identity=name, modules=["graph"]) as store:
            assert await store.call("SET", "a", 1, "EX", 60) == b"OK"


async def test_a_graph_database_that_takes_the_place_gets_no_command(graph_module: str) -> None:
    """Modules are looked at whenever the store connects: it stays down on a server with others."""
    with embedded.valkey() as ours:
        async with connect(ours.url) as store:
            port = ours.port
            ours.stop()
            with embedded.valkey(port=port, config={"loadmodule": graph_module}) as neighbour:
                while True:
                    with pytest.raises(ConnectionFailed) as failed:
                        await store.call("SET", "a", 1, "EX", 60)
                    if "has unexpected modules: Graph" in str(failed.value):
                        break
                    await asyncio.sleep(0.005)
                assert neighbour.ask("DBSIZE") == 0


async def test_a_cluster_carries_one_mark(cluster: Cluster) -> None:
    """The whole cluster is known by one key, wherever it lives, and asked for modules node by node."""
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
    """Of many who mark at once one succeeds; a name that a message could not show is refused."""
    async with open_client(f"{server.url}/8") as client:
        found = await asyncio.gather(*(write_identity(client, f"store-{n}") for n in range(50)))
        assert found.count(None) == 1
        assert set(found) - {None} == {await read_identity(client)}
        for name in ("", "two words", "x" * 65, "a\nb"):
            with pytest.raises(InvalidValue, match="ephemera:identity"):
                await write_identity(client, name)


async def test_the_mark_is_a_declared_key_that_nobody_else_may_declare(server: Valkey) -> None:
    """The audit can tell the mark, and a catalogue that reaches it cannot be opened."""
    assert RESERVED.classify(b"ephemera:identity") is SERVER_IDENTITY
    greedy = Catalogue("greedy")
    greedy.value("ephemera:{name}", str, lifetime=fixed(hours=1), purpose="x")
    with pytest.raises(OverlappingPatterns, match="ephemera:identity"):
        async with connect(server.url, greedy):
            pytest.fail("it must not open")
    async with connect(server.url, RESERVED) as store:
        assert await store[SERVER_IDENTITY].get() is None


async def test_a_cluster_that_is_away_is_not_taken_on_trust() -> None:
    """With an identity to check, a cluster that cannot be asked is refused, also when it may be absent."""
    with pytest.raises(CannotConnect, match="cannot be identified"):
        async with connect("redis+cluster://127.0.0.1:1", identity="mine", required=False):
            pass
