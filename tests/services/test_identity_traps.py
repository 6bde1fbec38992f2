"""The traps of identity's design, in the running service; each naive way is shown to fail in tests/traps."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import jwt

from ephemera.embedded import Valkey
from ephemera_services.identity.keys import REVOKED
from tests.services.identity_users import administrator, newcomer
from tests.services.services import Served


def keys(valkey: Valkey, pattern: str) -> list[str]:
    """The keys that fit a pattern."""
    found: Any = valkey.ask("KEYS", pattern)
    return [str(key) for key in found]


def test_i1_every_counter_ends(identity: Served, valkey: Valkey) -> None:
    """A counter that lost its end gets one back with the next request, and none is without."""
    ann = newcomer(identity)
    ann.profile()
    (counter,) = keys(valkey, f"rate:{ann.id}:/api/profiles:*")
    assert counter.rpartition(":")[2] in {f"{datetime.now(UTC):%Y%m%d%H}", _hour_ago()}
    valkey.ask("PERSIST", counter)
    ann.profile()
    assert 0 < int(str(valkey.ask("TTL", counter))) <= 3600


def test_i2_revoking_what_has_expired_does_nothing(identity: Served, valkey: Valkey) -> None:
    """No mark of a token outlives it by more than the leeway, and none is written without an end."""
    ann = newcomer(identity)
    assert ann.ask("POST", "/auth/logout").status_code == 204
    ends = jwt.decode(ann.tokens["access_token"], options={"verify_signature": False})
    left = int(str(valkey.ask("PTTL", f"blacklist:access:{ends['jti']}")))
    assert 0 < left / 1000 <= ends["exp"] - time.time() + REVOKED.leeway.total_seconds() + 1


def test_i3_sessions_hold_ids_and_never_tokens(identity: Served, valkey: Valkey) -> None:
    """The record in Redis has the ids of both tokens, and no part of either."""
    ann = newcomer(identity)
    (record,) = (str(valkey.ask("GET", key)) for key in keys(valkey, f"session:{ann.id}:*"))
    for name in ("access_token", "refresh_token"):
        claims = jwt.decode(ann.tokens[name], options={"verify_signature": False})
        assert claims["jti"] in record
        assert ann.tokens[name].rpartition(".")[2] not in record


def test_i4_no_reader_puts_an_old_profile_back(identity: Served, second: Served) -> None:
    """While two processes read all the time, the last update is what everyone reads afterwards."""
    ann = newcomer(identity)
    path = f"/api/profiles/{ann.id}"
    with ThreadPoolExecutor(8) as pool:
        for number in range(15):
            name = f"Name {number}"
            reads = [pool.submit(ann.profile, at) for at in (identity, second) * 4]
            changes = {"first_name": name, "last_name": "L"}
            assert ann.ask("PUT", path, json=changes).status_code == 200
            assert ann.profile(identity).json()["first_name"] == name
            for read in reads:
                read.result()
            assert _settles(lambda: ann.profile(second).json()["first_name"], name)
            assert ann.profile(identity).json()["first_name"] == name


def test_i6_times_are_utc(identity: Served) -> None:
    """Whatever the service tells of time carries its zone, and it is UTC."""
    ann = newcomer(identity)
    times = [ann.profile().json()["cached_at"]]
    for session in ann.ask("GET", "/auth/sessions").json()["sessions"]:
        times += [session["created_at"], session["refreshed_at"], session["expires_at"]]
    for text in times:
        assert text.endswith("Z")
        assert abs(datetime.fromisoformat(text).timestamp() - time.time()) < 8 * 86_400


def test_i7_administration_is_refused_while_revocation_is_unknown(identity: Served, valkey: Valkey) -> None:
    """A revocation check that cannot be made refuses administration, and says so."""
    root = administrator(identity)
    valkey.pause()
    try:
        assert root.ask("GET", "/admin/redis/stats").status_code == 503
    finally:
        valkey.resume()


def _settles(read: Any, expected: str) -> bool:
    """Whether a read gives this, at once or about a round trip later."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if read() == expected:
            return True
    return False


def _hour_ago() -> str:
    return f"{datetime.fromtimestamp(time.time() - 3600, UTC):%Y%m%d%H}"
