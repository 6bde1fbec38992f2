"""Run the tests of accessors and patterns with the least privileges.

Each store that such a test opens with catalogues on one of the suite's shared servers gets two clients. The
test's own calls (`store.call`) use the first. Accessors and patterns use the second, a user who has
only the `access_rules` of these catalogues. Servers, programs and workers that a test starts for itself are
not affected. A test in which the server denied that user something fails with the reason, the command or key,
and whether it was in a script.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import ephemera
import ephemera.keyspace
from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import Catalogue, Store
from ephemera.operations.configuration import access_rules
from ephemera.wire import Client, as_text, open_client
from tests.wire.debian_redis import DebianRedis

PASSWORD = "a-test-password"
_numbers = itertools.count()


class User:
    """A user of a server with the ACL that some catalogues need."""

    def __init__(self, admin: Client, url: str) -> None:
        self._admin = admin
        self.name = f"least-privileged-{next(_numbers)}"
        scheme, _, rest = url.partition("://")
        self.url = f"{scheme}://{self.name}:{PASSWORD}@{rest.rpartition('@')[2]}"

    async def denied(self) -> list[str]:
        """What the server denied this user."""
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
    """A user with the rules of these catalogues, on every node that holds keys, for the block."""
    async with open_client(url) as admin:
        user = User(admin, url)
        rules = [access_rules(catalogue, user.name, purposes=purposes).rules() for catalogue in catalogues]
        words = [word for each in rules for word in each if word not in ("reset", "-@all")]
        for node in admin.nodes():
            await node.call("ACL", "SETUSER", user.name, "reset", f">{PASSWORD}", *words)
        yield user
        for node in admin.nodes():
            await node.call("ACL", "DELUSER", user.name)


SUITES = (
    "tests/patterns/",
    "tests/adapters/test_lang",
    "tests/keyspace/test_accessors.py",
    "tests/keyspace/test_lifetime_writes.py",
)
_connect = ephemera.connect
_shared: set[str] = set()


def install() -> None:
    """Replace `connect`, before any test imports it."""
    ephemera.keyspace.connect = ephemera.connect = _connect_restricted


def share(server: Valkey | Cluster | DebianRedis) -> None:
    """Note a server that the whole suite shares."""
    _shared.add(server.url)


@asynccontextmanager
async def _connect_restricted(
    url: str, *catalogues: Catalogue, queue_url: str | None = None, **options: Any
) -> AsyncIterator[Store]:
    """Like `connect`, but accessors and patterns of those suites connect as the restricted user."""
    suite = os.environ.get("PYTEST_CURRENT_TEST", "").startswith(SUITES)
    async with AsyncExitStack() as opened:
        restricted = None
        if suite and catalogues and queue_url is None and url.partition("?")[0] in _shared:
            user = await opened.enter_async_context(
                admitted(url, *catalogues, purposes=("service", "tracking"))
            )
            opened.push_async_callback(_nothing_was_denied, user)
            restricted = await opened.enter_async_context(open_client(user.url))
        store = await opened.enter_async_context(_connect(url, *catalogues, queue_url=queue_url, **options))
        if restricted is not None:
            store._clients.update({"cache": restricted, "queue": restricted})
        yield store


async def _nothing_was_denied(user: User) -> None:
    refused = await user.denied()
    assert not refused, f"the rules of its catalogues do not suffice: {refused}"
