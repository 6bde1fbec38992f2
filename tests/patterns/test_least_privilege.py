"""The tests of this folder run as a user who may do what their catalogues need, and notice more than that."""

from __future__ import annotations

import pytest

from ephemera import keyspace
from ephemera.errors import ServerError
from tests.patterns.session_fixtures import CATALOGUE


async def _asks_for(key: str, url: str) -> None:
    async with keyspace.connect(url, CATALOGUE) as store:
        assert await store.call("SET", key, "1", "EX", "60") == b"OK"
        with pytest.raises(ServerError, match="NOPERM"):
            await store.client("cache").call("GET", key)


async def test_a_test_that_needs_more_than_the_rules_fails(url: str, key: str) -> None:
    """A key of no catalogue is refused to patterns, and fails the test that used it."""
    with pytest.raises(AssertionError, match=r"do not suffice: .*key"):
        await _asks_for(key, url)
