"""The sessions of two services as their owners declare them: hashes that slide, and JSON that does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec

from ephemera.keyspace import Catalogue, Store, fixed, sliding
from ephemera.patterns.sessions import Sessions


class Session(msgspec.Struct):
    """What slides keeps of who is signed in."""

    user_id: str
    role: str = "viewer"
    email: str = ""
    plan: str = "free"
    tags: list[str] = []
    last_active: datetime | None = None


class SignIn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What identity keeps: token ids and expiries, never a token."""

    user_id: int
    access_id: str = ""
    ip_address: str = ""
    scopes: dict[str, list[int]] = {}
    note: str | None = None


CATALOGUE = Catalogue("accounts")
SLIDING = Sessions(
    CATALOGUE, "session:{session_id}", Session, user="user_id", lifetime=sliding(hours=24), most_per_user=5
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


def somebody() -> str:
    """A user whom no other test knows."""
    return uuid4().hex


async def all_keys(store: Store) -> AsyncIterator[bytes]:
    """Every key on every node of a store's server."""
    calls = [store.call]
    if len(store.client("cache").nodes()) > 1:
        # Those of the test's own client: that of patterns may be restricted (tests/least_privilege).
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
