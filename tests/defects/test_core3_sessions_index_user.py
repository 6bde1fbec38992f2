"""CORE3: `create` listed a session under `str(user)`, `end_all` looked under the user as keys have it."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import msgspec
import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, sliding
from ephemera.patterns.sessions import Sessions


class Tenant(str, Enum):  # noqa: UP042 - a StrEnum prints as its value
    """`str(Tenant.ACME)` is 'Tenant.ACME'; in a key it is 'acme'."""

    ACME = "acme"


class Number(IntEnum):
    """Rendered as its number."""

    SEVEN = 7


USERS = {"bytes": b"ann", "not utf-8": b"\xff\x00", "enum": Tenant.ACME, "int enum": Number.SEVEN, "int": -3}


@pytest.mark.parametrize("kind", ["hash", "value"])
@pytest.mark.parametrize("name", USERS)
async def test_core3_end_all_revokes_sessions_of_users_of_any_type(
    server: Valkey, name: str, kind: Any
) -> None:
    """Whatever the type of the user's field, `of_user` and `end_all` find what `create` stored."""
    user: Any = USERS[name]
    record = msgspec.defstruct("Record", [("user_id", type(user))])
    catalogue = Catalogue("core3")
    declared: Sessions[Any] = Sessions(
        catalogue, "session:{session_id}", record, user="user_id", lifetime=sliding(hours=1), kind=kind
    )
    async with connect(server.url, catalogue) as store:
        sessions = store[declared]
        await sessions.end_all(user)
        sign_in = await sessions.begin_sign_in(user)
        token = await sessions.create(record(user), sign_in=sign_in)
        fresh = await sessions.rotate(token)
        assert fresh is not None
        assert [each.id for each in await sessions.of_user(user)] == [sessions.id_of(fresh)]
        assert await sessions.get(fresh) == record(user)
        assert await sessions.end_all(user) == 1
        assert await sessions.get(fresh) is None
