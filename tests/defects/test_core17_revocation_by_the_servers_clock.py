"""CORE17: a `revoke_user` that failed was remembered by this machine's clock, which may be wrong."""

from __future__ import annotations

import time
from datetime import timedelta
from enum import Enum

import pytest

from ephemera import connect
from ephemera.embedded import valkey
from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Catalogue
from ephemera.patterns.revocation import Revocation, TokenKind

CATALOGUE = Catalogue("core17")
REVOKED = Revocation(
    CATALOGUE,
    tokens={"access": TokenKind("gone:{jti}", lifetime=timedelta(minutes=15), when_down="local")},
)


class Account(str, Enum):  # noqa: UP042 - a StrEnum prints as its value
    """`str(Account.ANN)` is 'Account.ANN'; in a key it is 'ann'."""

    ANN = "ann"


@pytest.mark.parametrize("wrong_by", [-3600, 3600])
async def test_core17_a_failed_revocation_is_remembered_by_the_servers_clock(
    monkeypatch: pytest.MonkeyPatch, wrong_by: int
) -> None:
    """During an outage, tokens from before the revocation are void and later ones valid, by any clock."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong_by)
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            revoked = store[REVOKED]
            issued = await revoked.now("ann")
            await revoked.wait_subscribed()
            server.stop()
            with pytest.raises(ConnectionFailed):
                await revoked.revoke_user(Account.ANN)
            before = await revoked.check("access", user="ann", issued_at=issued)
            after = await revoked.check("access", user="ann", issued_at=issued + 600)
            assert (before.revoked, after.revoked) == (True, False)
