"""Credential providers: rotating passwords under load, re-authentication, and providers that fail."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ephemera import Credentials, embedded, sync
from ephemera.embedded import Valkey
from ephemera.errors import CannotConnect, ConnectionFailed, InvalidUrl
from ephemera.wire import Client, NodeClient, Subscription, open_client
from tests.wire.conditions import eventually


async def test_a_password_that_rotates_under_load_fails_no_call() -> None:
    """Each password is removed after the next two: no call fails, and live connections authenticate again."""
    with embedded.valkey() as server:
        passwords: list[str] = []

        def rotate() -> None:
            _rotate(passwords, [server])

        async def provide() -> Credentials:
            return Credentials("app", passwords[-1], expires_in=0.4)

        rotate()
        async with open_client(f"redis://127.0.0.1:{server.port}", credentials=provide) as client:
            assert isinstance(client, NodeClient)
            stop = asyncio.Event()

            async def load(number: int) -> int:
                for count in itertools.count():
                    if stop.is_set():
                        return count
                    await client.call("INCR", f"n:{number}")
                    if number == 0:
                        await client.call("BLPOP", "none", 0.02)
                    if number == 1:
                        await client.call("EVAL", "return 1", 0)
                    await asyncio.sleep(0.001)
                return 0

            tasks = [asyncio.create_task(load(number)) for number in range(10)]
            for _ in range(5):
                await asyncio.sleep(0.35)
                await asyncio.to_thread(rotate)
            await asyncio.sleep(0.35)
            assert not any(task.done() for task in tasks), "the rotation failed a call"
            client.link.drop("by a test")  # the next connection starts with the present password
            await eventually(lambda: client.connection_count == 2)
            stop.set()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            lost = [each for each in done if isinstance(each, BaseException)]
            assert [each for each in lost if not isinstance(each, ConnectionFailed)] == []
            assert await client.call("ACL", "WHOAMI") == b"app"
        statistics = str(server.ask("INFO", "commandstats"))
        assert int(statistics.split("cmdstat_auth:calls=")[1].split(",")[0]) >= 5
        assert "failed_calls=0" in statistics.split("cmdstat_auth:")[1].splitlines()[0]


async def test_live_connections_authenticate_again() -> None:
    """Before its credentials expire, every open connection becomes the user that the provider names next."""
    with embedded.valkey() as server:
        for name in ("first", "second"):
            server.ask("ACL", "SETUSER", name, "on", "~*", "&*", "+@all", f">{name}-password")
        names = ["first"]

        def provide() -> Credentials:
            return Credentials(names[-1], f"{names[-1]}-password", expires_in=0.3)

        def users() -> set[str]:
            lines = str(server.ask("CLIENT", "LIST")).splitlines()
            return {user for line in lines if (user := line.split(" user=")[1].split()[0]) != "default"}

        url = f"redis://127.0.0.1:{server.port}"
        async with open_client(url, credentials=provide) as client, client.subscribe("news") as news:
            assert isinstance(client, NodeClient)
            assert users() == {"first"}
            names.append("second")
            await eventually(lambda: users() == {"second"})
            assert client.connection_count == 1
            await client.call("PUBLISH", "news", "hello")
            assert (await asyncio.wait_for(anext(news), 10)).data == b"hello"


def _rotate(passwords: list[str], nodes: list[Valkey]) -> None:
    """Give the user a new password, and take away the one before the last; providers see what is valid."""
    new = f"password-{len(passwords)}"
    for node in nodes:
        node.ask("ACL", "SETUSER", "app", "on", "~*", "&*", "+@all", f">{new}")
    passwords.append(new)
    for old in passwords[-3:-2]:
        for node in nodes:
            node.ask("ACL", "SETUSER", "app", f"<{old}")


@contextmanager
def _topology(name: str) -> Iterator[tuple[str, list[Valkey]]]:
    """A URL without user and password, and the servers behind it."""
    with ExitStack() as stack:
        if name == "cluster":
            shards = stack.enter_context(embedded.cluster(masters=3, replicas=0))
            url, nodes = shards.url, list(shards.nodes)
        else:
            watched = stack.enter_context(embedded.sentinel())
            url, nodes = watched.url, list(watched.nodes)
        yield re.sub("//[^@/]*@", "//", url), nodes


@pytest.mark.parametrize("name", ["cluster", "sentinel"])
async def test_a_password_that_rotates_behind_a_cluster_or_sentinel(name: str) -> None:
    """Calls to every node and a subscription go on; lost connections return with the present password."""
    with _topology(name) as (url, nodes):
        passwords: list[str] = []

        def rotate() -> None:
            _rotate(passwords, nodes)

        rotate()
        credentials = lambda: Credentials("app", passwords[-1], expires_in=0.4)  # noqa: E731
        async with open_client(url, credentials=credentials) as client, client.subscribe("news") as news:
            for turn in range(4):
                for number in range(30):
                    await client.call("INCR", f"n:{number}")
                await client.call("PUBLISH", "news", turn)
                assert (await asyncio.wait_for(anext(news), 10)).data == b"%d" % turn
                await asyncio.sleep(0.3)
                await asyncio.to_thread(rotate)
            for node in nodes:  # the passwords of these connections are gone
                node.ask("CLIENT", "KILL", "USER", "app")
            await _until_answered(client)
            await _until_delivered(client, news)
        for node in nodes if name == "cluster" else nodes[:1]:
            said = str(node.ask("INFO", "commandstats")).split("cmdstat_auth:")[1].splitlines()[0]
            assert int(said.split("calls=")[1].split(",")[0]) >= 3
            assert "failed_calls=0" in said


async def _until_answered(client: Client) -> None:
    """Every key can be reached again."""
    async with asyncio.timeout(20):
        for number in range(30):
            while True:
                try:
                    assert await client.call("INCR", f"n:{number}") == 5
                    break
                except ConnectionFailed:
                    await asyncio.sleep(0.05)


async def _until_delivered(client: Client, news: Subscription) -> None:
    """A message arrives after the gap was reported."""
    async with asyncio.timeout(20):
        while True:
            try:
                if await client.call("PUBLISH", "news", "again"):
                    break
            except ConnectionFailed:
                pass
            await asyncio.sleep(0.05)
        while (await anext(news)).data != b"again":
            pass


def test_a_plain_function_serves_a_synchronous_store() -> None:
    """A plain function works for `sync.connect`, too; without expiry it is called for each connection."""
    with embedded.valkey() as server:
        server.ask("ACL", "SETUSER", "app", "on", "~*", "&*", "+@all", ">secret")
        asked: list[int] = []

        def provide() -> Credentials:
            asked.append(1)
            return Credentials("app", "secret")

        with sync.connect(f"redis://127.0.0.1:{server.port}", credentials=provide) as store:
            assert store.call("ACL", "WHOAMI") == b"app"
            assert len(asked) == 1
            store.call("BLPOP", "none", 0.01)
            assert len(asked) == 2


async def test_a_provider_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """At first it is `CannotConnect`; later the connection stays, and only the error's type is logged."""
    with embedded.valkey() as server:
        url = f"redis://127.0.0.1:{server.port}"

        def refuse() -> Credentials:
            raise PermissionError("token s3cret")

        with pytest.raises(CannotConnect, match="credential provider failed with PermissionError") as caught:
            async with open_client(url, credentials=refuse):
                pass
        assert "s3cret" not in str(caught.value)
        server.ask("ACL", "SETUSER", "app", "on", "~*", "&*", "+@all", ">secret")
        calls = itertools.count()

        def once() -> Credentials:
            if next(calls):
                raise PermissionError("token s3cret")
            return Credentials("app", "secret", expires_in=0.05)

        async with open_client(url, credentials=once) as client:
            await eventually(lambda: "PermissionError" in caplog.text)
            assert await client.call("ACL", "WHOAMI") == b"app"
        assert "s3cret" not in caplog.text


async def test_a_url_with_a_password_and_a_provider() -> None:
    """Two sources of credentials are refused."""
    with pytest.raises(InvalidUrl, match="take user name and password out of the URL"):
        async with open_client("redis://u:p@127.0.0.1:1", credentials=lambda: Credentials()):
            pass
