"""SEC4: 14,000 anonymous requests for made-up ids evicted every session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import pytest

from ephemera import Catalogue, connect, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.cache import Cache
from ephemera.patterns.rate_limits import RateLimits
from ephemera.patterns.revocation import Revocation
from ephemera.patterns.sessions import Sessions
from ephemera_services import SERVICES
from tests.defects.service_apps import App, opened
from tests.security.guarded import catalogue_of

_FORM = {"name": "ann", "password": "correct horse battery"}
_ROOM = 40_000  # bytes


@pytest.fixture
def evicting() -> Iterator[Valkey]:
    """A server that evicts when it is full."""
    with embedded.valkey(config={"maxmemory-policy": "allkeys-lru"}) as running:
        yield running


@pytest.mark.standalone("the eviction of one server")
async def test_sec4_made_up_ids_do_not_evict_a_session(
    evicting: Valkey, server: Valkey, postgres: Postgres
) -> None:
    """However many pages the cache must evict, a user stays signed in and limits stay counted."""
    server.ask("FLUSHALL")
    queue = {"EPHEMERA_QUEUE_URL": server.url, "EPHEMERA_LEAGUE_REQUESTS_PER_10_SECONDS": "1000000"}
    async with opened("league", evicting, postgres, queue) as app:
        assert (await app.ask("POST", "/api/users", json=_FORM)).status_code == 201
        signed_in = await app.ask("POST", "/api/session", json=_FORM)
        me = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        assert (await app.ask("GET", "/api/me", headers=me)).status_code == 200
        evicting.ask("CONFIG", "SET", "maxmemory", _info(evicting, "used_memory") + _ROOM)
        for first in range(1_000_000, 1_002_000, 50):
            await asyncio.gather(*(_made_up(app, number) for number in range(first, first + 50)))
            if _info(evicting, "evicted_keys") > 0:
                break
        assert _info(evicting, "evicted_keys") > 0, "the flood was larger than the cache"
        assert (await app.ask("GET", "/api/me", headers=me)).status_code == 200


async def _made_up(app: App, number: int) -> None:
    path = f"/api/matches/{number}/meta"
    assert (await app.ask("GET", path, address=f"198.18.{number % 250}.7")).status_code == 404


def _keys(server: Valkey, pattern: str) -> list[str]:
    return cast("list[str]", server.ask("KEYS", pattern))


def _info(server: Valkey, name: str) -> int:
    lines = str(server.ask("INFO")).splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).partition(":")[2])


async def test_sec4_a_negative_entry_ends_with_its_declared_lifetime(server: Valkey) -> None:
    """It lives for `missing`, not for `missing` and `stale`, and is small."""
    catalogue = Catalogue("sec4")
    cache = Cache(
        catalogue, "sec4:{id}", str, fresh=timedelta(hours=1), stale=timedelta(hours=1),
        missing=timedelta(seconds=10), purpose="test",
    )  # fmt: skip
    async with connect(server.url, catalogue) as store:

        async def nothing(**_: object) -> None:
            return None

        assert await store[cache].get_or_load(nothing, id="made-up") is None
    (key,) = _keys(server, "sec4:*")
    assert 0 < cast("int", server.ask("PTTL", key)) <= 10_000
    assert cast("int", server.ask("MEMORY", "USAGE", key)) < 256


@pytest.mark.standalone("it lists the keys of one server")
async def test_sec4_ids_are_checked_before_a_key_is_made(server: Valkey, postgres: Postgres) -> None:
    """What cannot be an id is 404 without a key, even with a condition; what could be one is limited."""
    async with opened("league", server, postgres) as app:
        for path in ("/api/clubs/x/matches", "/api/matches/007/meta", "/api/leaderboards/made-up"):
            for headers in ({}, {"if-none-match": '"x"'}):
                assert (await app.ask("GET", path, headers=headers)).status_code == 404
        assert (await app.ask("GET", "/api/predictions?range=9999d")).status_code == 404
        made = [key for part in (":x:", "007", "made-up", "9999d") for key in _keys(server, f"*{part}*")]
        assert made == []
        asked = (app.ask("GET", f"/api/clubs/{number}/matches") for number in range(100, 240))
        answers = await asyncio.gather(*asked)  # at once: a slow machine would need more than one window
        assert 429 in {each.status_code for each in answers}


@pytest.mark.parametrize("service", SERVICES)
def test_sec4_sessions_revocations_and_limits_are_never_evicted(service: str) -> None:
    """In every service they have the role `queue`."""
    for pattern in catalogue_of(service).patterns:
        if isinstance(pattern, Sessions):
            assert (pattern.keyspace.role, pattern.index.role) == ("queue", "queue")
        elif isinstance(pattern, Revocation):
            assert pattern.users.role == pattern.families.role == "queue"
        elif isinstance(pattern, RateLimits):
            assert pattern.role == "queue", pattern
