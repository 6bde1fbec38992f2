"""Passwords never appear in messages, representations, tracebacks or logs."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Sentinel, Valkey
from ephemera.errors import EphemeraError, ServerError
from ephemera.wire import open_client, parse_url
from tests.wire.clients import connection_of, node_client
from tests.wire.scripted_server import Peer, scripted_server

_CANARY = "canary-5e1f"


def _everything_about(error: BaseException | None) -> str:
    """What a log, a debugger or an error tracker shows of an exception and its causes."""
    text = ""
    while error is not None:
        text += f"{error} {error!r} {error.args} {vars(error)} {''.join(traceback.format_exception(error))}"
        error = error.__cause__ or error.__context__
    return text


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All logs from DEBUG on; none of them may contain the canary."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    assert _CANARY not in caplog.text
    assert not [record for record in caplog.records if _CANARY in repr(vars(record))]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Valkey]:
    """A server whose password is the canary."""
    with embedded.valkey(password=_CANARY) as running:
        yield running


def test_a_parsed_url_hides_its_password() -> None:
    """No representation of a parsed URL shows a password, its own or that of the Sentinels."""
    target = parse_url(f"redis+sentinel://ann:{_CANARY}@host/main?sentinel_password={_CANARY}")
    assert target.credentials.password == target.sentinel_credentials.password == _CANARY
    assert _CANARY not in f"{target} {target!r} {target.credentials!r} {target.sentinel_credentials!r}"


async def test_a_connected_client_hides_its_password(
    guarded: Valkey, logged: pytest.LogCaptureFixture
) -> None:
    """No representation of a client or of its parts, and no error of a call, shows the password."""
    async with node_client(guarded.url) as client:
        with pytest.raises(ServerError) as caught:
            await client.call("NOSUCHCOMMAND", _CANARY)
        async with client.subscribe("news"):
            parts = [client, client.endpoint, client.endpoint.target, client.link, client.hub, client.call]
            shown = repr([*parts, connection_of(client), *asyncio.all_tasks()]) + str(client.endpoint)
        assert _CANARY not in shown
        assert _CANARY not in _everything_about(caught.value)


async def test_a_lost_connection_hides_its_password(
    guarded: Valkey, logged: pytest.LogCaptureFixture
) -> None:
    """Neither the log of a lost connection nor the errors of its callers show the password."""
    async with node_client(guarded.url) as client:
        lost = client.call("INCR", "counter")
        client.link.drop("test")
        with pytest.raises(EphemeraError) as caught:
            await lost
        assert _CANARY not in _everything_about(caught.value)
        assert "test; reconnecting" in logged.text


@pytest.mark.parametrize("who", [f":{_CANARY}x", f"{_CANARY}:{_CANARY}", f"ann:{_CANARY}"])
@pytest.mark.parametrize("kind", ["", "+cluster", "+sentinel"])
async def test_refused_credentials_are_not_repeated(
    guarded: Valkey, logged: pytest.LogCaptureFixture, who: str, kind: str
) -> None:
    """A refused password or user is not repeated in the error."""
    query = f"/main?sentinel_password={_CANARY}" if kind == "+sentinel" else ""
    await _fails(f"redis{kind}://{who}@127.0.0.1:{guarded.port}{query}")


async def _fails(url: str) -> None:
    with pytest.raises(EphemeraError) as caught:
        async with open_client(url):
            pass
    assert _CANARY not in _everything_about(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        f"-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' '{_CANARY}'\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "",
    ],
    ids=["echo", "http", "hang up"],
)
async def test_a_strange_server_reveals_no_password(logged: pytest.LogCaptureFixture, reply: str) -> None:
    """A server that echoes what it was sent, or is not Redis, does not bring the password into the error."""

    async def answer(peer: Peer) -> None:
        await peer.command()
        await peer.send(reply.encode())
        if reply:
            await peer.wait_for_disconnect()

    async with scripted_server(answer) as address:
        await _fails(f"redis://:{_CANARY}@{address}")


async def test_servers_of_another_kind_reveal_no_password(
    cluster: Cluster, sentinel: Sentinel, logged: pytest.LogCaptureFixture
) -> None:
    """A URL of the wrong kind, with a password that was not needed, is refused without it."""
    await _fails(f"redis://:{_CANARY}@127.0.0.1:{cluster.nodes[0].port}")
    await _fails(f"redis://:{_CANARY}@127.0.0.1:{sentinel.sentinels[0].port}")
    await _fails(
        sentinel.url.replace(f":{sentinel.nodes[0].password}@", f":{_CANARY}@").replace("mymaster", "none")
    )


async def test_starting_without_a_server_reveals_no_password(
    guarded: Valkey, logged: pytest.LogCaptureFixture
) -> None:
    """The warning of a store that starts while its server refuses it has no password in it."""
    url = f"redis://:{_CANARY}x@127.0.0.1:{guarded.port}"
    async with node_client(url, required=False) as client:
        with pytest.raises(EphemeraError) as caught:
            await client.call("GET", "anything")
        assert "password is wrong" in str(caught.value)
        assert _CANARY not in _everything_about(caught.value)
    assert "starting without" in logged.text
