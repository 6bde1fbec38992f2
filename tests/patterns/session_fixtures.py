"""Session declarations for tests: hashes that slide, and JSON values that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec

from ephemera.keyspace import Catalogue, Store, fixed, sliding
from ephemera.patterns.sessions import Sessions


class Session(msgspec.Struct):
    """A session with fields of several types."""

    user_id: str
    role: str = "viewer"
    email: str = ""
    plan: str = "free"
    tags: list[str] = []
    last_active: datetime | None = None


class SignIn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that stores token ids and expiries, never a token."""

    user_id: int
    access_id: str = ""
    ip_address: str = ""
    scopes: dict[str, list[int]] = {}
    note: str | None = None


CATALOGUE = Catalogue("accounts")
SLIDING = Sessions(
    CATALOGUE, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24), max_per_user=5
)
FIXED = Sessions(
    CATALOGUE,
    "signin:{user_id}:{sid}",
    SignIn,
    user="user_id",
    lifetime=fixed(hours=1),
    kind="value",
    index="signins:{user_id}",
)
BRIEF = Sessions(
    CATALOGUE,
    "brief:{session_id}",
    Session,
    user="user_id",
    index="briefs:{user_id}",
    lifetime=sliding(seconds=2),
)


def new_user() -> str:
    """A user id that no other test uses."""
    return uuid4().hex


async def all_keys(store: Store) -> AsyncIterator[bytes]:
    """Every key on every node of a store's server."""
    calls = [store.call]
    if len(store.client("cache").nodes()) > 1:
        # The nodes of the test's own client: the patterns' client may be restricted (tests/least_privilege).
        whole: Any = store.call
        calls = [node.call for node in whole.__self__.nodes()]
    for call in calls:
        cursor = b"0"
        while True:
            cursor, keys = await call("SCAN", cursor, "COUNT", 1000)
            for key in keys:
                yield key
            if cursor == b"0":
                break
