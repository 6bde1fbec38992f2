"""Connections that cannot be opened: each error says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Sentinel, Valkey
from ephemera.errors import CannotConnect
from tests.wire.clients import node_client
from tests.wire.scripted_server import Peer, scripted_server


async def _refusal(url: str) -> CannotConnect:
    """The error of opening a URL; it has an address, a problem and advice."""
    with pytest.raises(CannotConnect) as caught:
        async with node_client(url):
            pass
    assert caught.value.address
    assert caught.value.problem
    assert caught.value.advice in str(caught.value)
    return caught.value


@pytest.fixture(scope="module")
def guarded() -> Iterator[Valkey]:
    """A server with a password and some ACL users."""
    with embedded.valkey(password="right") as running:
        running.ask("ACL", "SETUSER", "ann", "on", ">hers", "~*", "+@all")
        running.ask("ACL", "SETUSER", "mute", "on", ">hers", "~*", "-@all")
        yield running


@pytest.mark.parametrize("who", [":wrong", "ann:wrong", "unknown:right", "ann:right", "ann"])
async def test_wrong_credentials(guarded: Valkey, who: str) -> None:
    """A wrong password and a wrong user give the same error, which says where to look."""
    error = await _refusal(f"redis://{who}@127.0.0.1:{guarded.port}")
    assert error.problem == "the user name or password is wrong"
    assert "ACL LIST" in error.advice


async def test_a_missing_password(guarded: Valkey) -> None:
    """When a server requires a password, the error says so, and the advice shows where it goes."""
    error = await _refusal(f"redis://127.0.0.1:{guarded.port}")
    assert error.problem == "it requires a password"
    assert "redis://:PASSWORD@host" in error.advice


async def test_a_user_who_may_do_nothing(guarded: Valkey) -> None:
    """For a user without the permissions of a handshake the error says which are needed."""
    error = await _refusal(f"redis://mute:hers@127.0.0.1:{guarded.port}")
    assert error.problem == "the user lacks a permission"
    assert "HELLO, PING, CLIENT and SELECT" in error.advice


@pytest.mark.parametrize("number", [16, 99, 999_999_999])
async def test_a_database_that_does_not_exist(server: Valkey, number: int) -> None:
    """A database number beyond the server's is named."""
    error = await _refusal(f"{server.url}/{number}")
    assert error.problem == f"it has no database {number}"
    assert "Use a lower number" in error.advice


async def test_a_port_without_a_server() -> None:
    """For a port without a server the error asks whether the server is running."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        error = await _refusal(f"redis://127.0.0.1:{closed.getsockname()[1]}")
    assert "refused" in error.problem
    assert "Is it running" in error.advice


async def test_an_unknown_host() -> None:
    """For a host without an address the error asks whether it is right."""
    error = await _refusal("redis://no-such-host.invalid?connect_timeout=5")
    assert "are host and port right?" in error.advice or "Is it up" in error.advice


async def test_a_missing_socket(tmp_path: Path) -> None:
    """A unix socket that does not exist is named."""
    error = await _refusal(f"unix://{tmp_path}/redis.sock")
    assert error.problem == f"{tmp_path}/redis.sock does not exist"
    assert "Check the path" in error.advice


async def test_a_file_that_is_no_socket(tmp_path: Path) -> None:
    """A file in place of a unix socket is an error with advice, too."""
    (tmp_path / "redis.sock").touch()
    error = await _refusal(f"unix://{tmp_path}/redis.sock")
    assert "refused" in error.problem


async def _assert_error(greeting: bytes, problem: str) -> None:
    async def greet(peer: Peer) -> None:
        await peer.send(greeting)
        await peer.wait_for_disconnect()

    async with scripted_server(greet) as address:
        error = await _refusal(f"redis://{address}")
    assert problem in error.problem
    assert "Is it a Redis or Valkey server" in error.advice
    assert "rediss://" in error.advice


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 mail.example.org ESMTP\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"+OK POP3 ready\r\n+OK\r\n+OK\r\n+OK\r\n",
    ],
    ids=["http", "ssh", "smtp", "tls alert", "pop3"],
)
async def test_not_a_redis_server(greeting: bytes) -> None:
    """A server of another kind is recognised by its first bytes."""
    await _assert_error(greeting, "it does not speak the Redis protocol")


async def test_a_server_that_says_nothing() -> None:
    """A server that accepts and stays silent is not waited for longer than the timeout."""

    async def ignore(peer: Peer) -> None:
        await peer.wait_for_disconnect()

    async with scripted_server(ignore) as address:
        begun = asyncio.get_running_loop().time()
        error = await _refusal(f"redis://{address}?timeout=0.1")
        assert asyncio.get_running_loop().time() - begun < 5
    assert error.problem == "no answer for 100 ms"
    assert "Is it a Redis or Valkey server" in error.advice


async def test_a_server_that_closes_at_once() -> None:
    """A server that closes the connection at once gives an error that says so."""

    async def hang_up(peer: Peer) -> None:
        await peer.command()

    async with scripted_server(hang_up) as address:
        error = await _refusal(f"redis://{address}")
    assert "closed the connection" in error.problem or "connection lost" in error.problem
    assert "Is it a Redis or Valkey server" in error.advice


@pytest.mark.parametrize(
    ("said", "problem"), [({"version": "6.2.14"}, "it is Redis 6.2.14"), ({"mode": "?"}, "does not speak")]
)
async def test_a_server_of_an_unsupported_version(said: dict[str, str], problem: str) -> None:
    """A server that is too old, or that answers HELLO with something unknown, is refused."""

    async def greet(peer: Peer) -> None:
        await peer.handshake(**said)
        await peer.wait_for_disconnect()

    async with scripted_server(greet) as address:
        error = await _refusal(f"redis://{address}")
    assert problem in error.problem
    assert "Redis" in error.advice


@pytest.mark.parametrize(
    "refusal",
    [
        b"-ERR unknown command 'HELLO', with args beginning with: '3'",
        b"-NOPROTO unsupported protocol version",
    ],
)
async def test_a_server_without_resp3(refusal: bytes) -> None:
    """For a server without HELLO 3 the error says what is needed."""

    async def refuse(peer: Peer) -> None:
        while await peer.command():
            await peer.send(refusal + b"\r\n")

    async with scripted_server(refuse) as address:
        error = await _refusal(f"redis://{address}")
    assert error.advice == "Ephemera needs Redis 7 or Valkey"


async def test_a_cluster_node_behind_a_plain_url(cluster: Cluster) -> None:
    """A plain URL to a node of a cluster says which URL to use."""
    error = await _refusal(cluster.nodes[0].url)
    assert error.problem == "it runs in cluster mode"
    assert "redis+cluster://" in error.advice


async def test_a_plain_server_behind_a_cluster_url(server: Valkey) -> None:
    """A cluster URL to a plain server says which URL to use."""
    error = await _refusal(server.url.replace("redis:", "redis+cluster:"))
    assert error.problem == "it runs in standalone mode"
    assert "redis://" in error.advice


async def test_a_sentinel_behind_a_plain_url(sentinel: Sentinel) -> None:
    """A plain URL to a Sentinel says which URL to use."""
    error = await _refusal(sentinel.sentinels[0].url)
    assert error.problem == "it runs in sentinel mode"
    assert "redis+sentinel://host:port/NAME" in error.advice


async def test_a_plain_server_behind_a_sentinel_url(server: Valkey) -> None:
    """A Sentinel URL to a plain server says that it is not a Sentinel."""
    error = await _refusal(
        f"{server.url}/mymaster?sentinel_password={server.password}".replace("redis:", "redis+sentinel:")
    )
    assert "it runs in standalone mode" in error.problem


async def test_a_sentinel_that_names_no_address() -> None:
    """An answer that is not a host and a port gives an error that says so."""

    async def confuse(peer: Peer) -> None:
        await peer.handshake(mode="sentinel")
        await peer.command()
        await peer.send(b"*2\r\n$9\r\n127.0.0.1\r\n$1\r\nx\r\n")
        await peer.wait_for_disconnect()

    async with scripted_server(confuse) as address:
        error = await _refusal(f"redis+sentinel://{address}/mymaster")
    assert "it names a master without an address" in error.problem


async def test_an_unknown_master_name(sentinel: Sentinel) -> None:
    """For an unknown master name the error contains that name."""
    error = await _refusal(sentinel.url.replace("mymaster", "yourmaster"))
    assert "it watches no master 'yourmaster'" in error.problem


async def test_a_cluster_without_a_reachable_node(tmp_path: Path) -> None:
    """When no node of a cluster can be reached, the error names each of them."""
    with socket.socket() as one, socket.socket() as two:
        for closed in (one, two):
            closed.bind(("127.0.0.1", 0))
        ports = [closed.getsockname()[1] for closed in (one, two)]
        error = await _refusal(f"redis+cluster://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}")
    assert all(str(port) in str(error) for port in ports)
