"""USE2: `infer` and `audit` printed live session ids of Django among their examples."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from django.contrib.sessions.backends.cache import KEY_PREFIX
from django.core.cache.backends.redis import RedisCache
from django.utils.crypto import get_random_string

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, permanent
from ephemera.operations.audit import audit
from ephemera.operations.infer import infer


@pytest.fixture(scope="module")
def django_server() -> Iterator[tuple[Valkey, list[str]]]:
    """A server with pages and sessions that Django wrote, and the ids of the sessions."""
    with embedded.valkey() as server:
        cache = RedisCache(server.url, {})
        ids = [get_random_string(32, "abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(20)]
        for number, session_id in enumerate(ids):
            cache.set(f"{KEY_PREFIX}{session_id}", {"user": number}, 60)
            cache.set(f"page-{number}", "x", None)
        cache.close()
        yield server, ids


async def test_use2_no_session_id_is_shown(django_server: tuple[Valkey, list[str]]) -> None:
    """Neither a proposal, nor an audit without a catalogue or with too wide a pattern, names a session."""
    server, ids = django_server
    wide = Catalogue("wide")
    wide.counter(":1:{id}", lifetime=permanent(reason="a guess"), purpose="Everything that Django caches")
    shown = [
        (await infer(server.url)).source,
        msgspec.json.encode(await audit(server.url, [])).decode(),
        msgspec.json.encode(await audit(server.url, [wide])).decode(),
    ]
    assert [each for each in shown for session_id in ids if session_id in each] == []


async def test_use2_the_pattern_of_sessions_is_sensitive(django_server: tuple[Valkey, list[str]]) -> None:
    """One session among the sampled keys is enough to declare a pattern sensitive."""
    proposal = await infer(django_server[0].url)
    assert [each.sensitive for each in proposal.keyspaces] == [True]


async def test_use2_random_ids_of_undeclared_keys_are_not_shown() -> None:
    """Without a word that says what they are, ids that could be a bearer's are not shown, others are."""
    ids = ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "q4Xh0dJ3-vT8kLmZ2_bYw9Rn1PfGsA6c", "k3j5" * 8]
    with embedded.valkey() as server:
        for each in ids:
            server.ask("SET", f"online:{each}", "1")
        server.ask("SET", "report:2026-11-18T10-00-00", "1")
        server.ask("SET", "a b*", "1")
        proposal = (await infer(server.url)).source
        report = msgspec.json.encode(await audit(server.url, [])).decode()
    for text in (proposal, report):
        assert [each for each in ids if each in text] == []
        assert "report:2026-11-18T10-00-00" in text
        assert "a b*" in text
