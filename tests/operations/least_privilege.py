"""A pytest plugin that puts a suite under the least privileges: `-p tests.operations.least_privilege`.

Each store that a test opens with catalogues on one of the suite's shared servers gets two clients: what the
test itself calls (`store.call`) goes as before, and what accessors and patterns send goes as a user with the
`access_rules` of these catalogues and no more. Servers that a test starts for itself, mostly to kill them,
are left alone. What the server refused to that user is appended to the file that EPHEMERA_DENIALS names: the
reason, the command or key, whether in a script, and the test.
"""

from __future__ import annotations

import itertools
import os
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ephemera.keyspace
import ephemera.keyspace.store as stores
from ephemera.operations.acl import access_rules
from ephemera.wire import open_client
from ephemera.wire.commands import as_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Generator

    from ephemera.keyspace import Catalogue, Store
    from ephemera.wire import Client

PASSWORD = "a-test-password"
_numbers = itertools.count()


class User:
    """A user of a server who may do what some catalogues need."""

    def __init__(self, admin: Client, url: str) -> None:
        self._admin = admin
        self.name = f"least-privileged-{next(_numbers)}"
        scheme, _, place = url.partition("://")
        self.url = f"{scheme}://{self.name}:{PASSWORD}@{place}"

    async def denied(self) -> list[str]:
        """What the server refused to this user."""
        entries = [entry for node in self._admin.nodes() for entry in await node.call("ACL", "LOG")]
        return [
            " ".join(as_text(entry[part]) for part in (b"reason", b"object", b"context"))
            for entry in entries
            if as_text(entry[b"username"]) == self.name
        ]


@asynccontextmanager
async def admitted(
    url: str, *catalogues: Catalogue, purposes: Collection[str] = ("service",)
) -> AsyncIterator[User]:
    """A user with the rules of these catalogues, on every node that holds keys, for a while."""
    async with open_client(url) as admin:
        user = User(admin, url)
        rules = [access_rules(catalogue, user.name, purposes=purposes).words() for catalogue in catalogues]
        words = [word for each in rules for word in each if word not in ("reset", "-@all")]
        for node in admin.nodes():
            await node.call("ACL", "SETUSER", user.name, "reset", f">{PASSWORD}", *words)
        yield user
        for node in admin.nodes():
            await node.call("ACL", "DELUSER", user.name)


_connect = stores.connect
_shared: set[str] = set()


@asynccontextmanager
async def connect_with_least_privilege(
    url: str, *catalogues: Catalogue, queue_url: str | None = None, **options: Any
) -> AsyncIterator[Store]:
    """As `connect`, but accessors and patterns go as the restricted user."""
    async with AsyncExitStack() as opened:
        restricted = None
        if catalogues and queue_url is None and url.partition("?")[0] in _shared:
            user = await opened.enter_async_context(admitted(url, *catalogues))
            opened.push_async_callback(_note_denials, user)
            restricted = await opened.enter_async_context(open_client(user.url))
        store = await opened.enter_async_context(_connect(url, *catalogues, queue_url=queue_url, **options))
        if restricted is not None:
            store._clients.update({"cache": restricted, "queue": restricted})
        yield store


async def _note_denials(user: User) -> None:
    for refusal in await user.denied():
        with Path(os.environ["EPHEMERA_DENIALS"]).open("a", encoding="utf-8") as file:
            file.write(f"{refusal} in {os.environ.get('PYTEST_CURRENT_TEST')}\n")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Note the URLs of the servers that the whole suite shares: Valkey, the cluster, Debian's Redis 7."""
    made = yield
    if fixturedef.argname in ("server", "cluster", "redis7"):
        _shared.add(made.url)
    return made


def pytest_configure() -> None:
    """Replace `connect` before any test imports it."""
    stores.connect = ephemera.keyspace.connect = connect_with_least_privilege
