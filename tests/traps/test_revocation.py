"""Traps I2 and I7: revoking an expired token, and checking while Redis is down."""

from __future__ import annotations

import time

import pytest

from ephemera.embedded import Valkey, valkey
from ephemera.errors import EphemeraError, ServerError
from ephemera.keyspace import Store, connect
from tests.patterns.session_fixtures import new_user
from tests.patterns.test_revocation import CATALOGUE, REVOKED


async def test_i2_revoking_an_expired_token_does_nothing(server: Valkey) -> None:
    """SETEX with a negative time fails the sign-out; ours writes nothing and is not an error."""
    async with connect(server.url, CATALOGUE) as store:
        expired, jti = time.time() - 90, new_user()  # beyond the leeway that verifiers have
        for seconds in (0, int(expired - time.time())):
            with pytest.raises(ServerError, match="invalid expire time"):
                await store.call("SETEX", f"blacklist:access:{jti}", seconds, "true")
        assert await store[REVOKED].revoke_token("access", jti, until=expired) is False
        assert await store.call("EXISTS", f"blacklist:access:{jti}") == 0


async def _naive_is_blacklisted(store: Store, jti: str) -> bool:
    """The naive check, with the usual error handler."""
    try:
        return bool(await store.call("EXISTS", f"blacklist:access:{jti}"))
    except EphemeraError:
        return False


async def test_i7_a_check_that_cannot_be_made_does_not_pass_silently() -> None:
    """With Redis down the naive check admits a revoked token; ours refuses it, or says it is not certain."""
    with valkey() as server:
        async with connect(server.url, CATALOGUE) as store, connect(server.url, CATALOGUE) as other:
            revoked, jti = store[REVOKED], new_user()
            await other[REVOKED].wait_subscribed()
            await revoked.wait_subscribed()
            await revoked.revoke_token("access", jti, until=time.time() + 600)
            await revoked.revoke_token("refresh", jti, until=time.time() + 600)
            await other[REVOKED].check("access", jti=jti)
            server.kill()
            assert await _naive_is_blacklisted(store, jti) is False

            for process in (revoked, other[REVOKED]):
                assert (await process.check("access", jti=jti)).revoked
            unknown = await revoked.check("refresh", jti=new_user())
            assert (unknown.revoked, unknown.certain) == (True, False)
            admin = await revoked.check("access", jti=new_user(), when_down="closed")
            assert (admin.revoked, admin.certain) == (True, False)
            guessed = await revoked.check("access", jti=new_user())
            assert (guessed.revoked, guessed.certain) == (False, False)
