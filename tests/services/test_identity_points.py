"""Points of identity's source description that no other test shows; docs/systems/identity.md has them all."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from ephemera.embedded import Valkey
from ephemera_services.identity import catalogue
from tests.services.identity_users import Person, newcomer
from tests.services.services import Served


def ask(valkey: Valkey, *words: str | int) -> Any:
    """The reply to one command."""
    return valkey.ask(*words)


def token_ids(person: Person) -> tuple[str, str]:
    """The ids of both tokens."""
    tokens = (person.tokens["access_token"], person.tokens["refresh_token"])
    first, second = (jwt.decode(each, options={"verify_signature": False})["jti"] for each in tokens)
    return first, second


def test_a_session_ends_with_its_ttl(identity: Served, valkey: Valkey) -> None:
    """Its record lives for 3,600 s and is then gone; the list of sign-ins shows that it is not in use."""
    ann = newcomer(identity)
    (key,) = ask(valkey, "KEYS", f"session:{ann.id}:*")
    assert 3500 < ask(valkey, "TTL", key) <= 3600
    ask(valkey, "PEXPIRE", key, 1)
    while ask(valkey, "EXISTS", key):
        pass
    (listed,) = ann.ask("GET", "/auth/sessions").json()["sessions"]
    assert (listed["sid"], listed["in_use"]) == (ann.sid, False)


def test_a_sign_out_lists_both_tokens_until_they_expire(identity: Served, valkey: Valkey) -> None:
    """Each has a mark without content that ends with its token, so that nothing leaks."""
    ann = newcomer(identity)
    access, refresh = token_ids(ann)
    assert ann.ask("POST", "/auth/logout").status_code == 204
    for kind, token_id, seconds in (("access", access, 900), ("refresh", refresh, 7 * 86_400)):
        key = f"blacklist:{kind}:{token_id}"
        assert seconds - 60 < ask(valkey, "TTL", key) <= seconds + 61
        assert len(ask(valkey, "GET", key)) <= 4


def test_limits_start_again_with_the_hour(identity: Served, valkey: Valkey) -> None:
    """The counter's key names the hour, so the next hour has another one that starts at nothing."""
    hour = -1.0
    while time.time() // 3600 != hour:  # otherwise the hour ended in the meantime
        hour = time.time() // 3600
        ann = newcomer(identity)
        first, second = (_remaining(ann) for _ in range(2))
        key, *_ = ask(valkey, "KEYS", f"rate:{ann.id}:/api/profiles:*")
        began = datetime.strptime(key.rpartition(":")[2], "%Y%m%d%H").replace(tzinfo=UTC)
        former = f"{key.rpartition(':')[0]}:{began - timedelta(hours=1):%Y%m%d%H}"
        ask(valkey, "SET", former, ask(valkey, "GET", key), "EX", 3600)  # as if an hour had passed
        ask(valkey, "DEL", key)
        third = _remaining(ann)
    assert (second, third) == (first - 1, first)


def _remaining(person: Person) -> int:
    found = re.search(r";r=(\d+)", person.profile().headers["ratelimit"])
    assert found is not None
    return int(found[1])


def test_keys_are_named_by_the_rules() -> None:
    """Lower case, parts separated by colons, and the category first."""
    categories = ("session", "blacklist", "revoked", "cache", "loading", "loaded", "rate", "sliding_rate")
    for declared in catalogue:
        assert declared.pattern.startswith(categories)
        fixed = [part for part in declared.pattern.split(":") if not part.startswith("{")]
        assert all(part == part.lower() and " " not in part for part in fixed)
