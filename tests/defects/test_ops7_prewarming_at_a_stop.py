"""OPS7: an orderly stop during prewarming was logged as a failure: `prewarming ... StoreClosed`."""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import StoreClosed
from tests.patterns.league_site import League, Source, connect_league
from tests.wire.conditions import eventually


async def test_ops7_a_stop_during_prewarming_is_silent(
    server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is closed while pages are loaded leaves no warning."""
    source = Source(1)
    league = League(f"l{uuid4().hex[:8]}")
    with caplog.at_level(logging.INFO, "ephemera"):
        async with connect_league(server.url, league, source) as store:
            source.gate.clear()
            store[league.site].prewarm_in_background()
            await eventually(lambda: source.loads > 0)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_ops7_a_refresh_on_a_closed_store_ends_the_round(
    server: Valkey, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page that finds the store closed ends the prewarming, quietly."""
    league, asked = League(f"l{uuid4().hex[:8]}"), []
    async with connect_league(server.url, league, Source(1)) as store:
        site = store[league.site]

        async def closed(page: object) -> bool:
            asked.append(page)
            raise StoreClosed("the store is closed")

        monkeypatch.setattr(site, "_refresh", closed)
        with caplog.at_level(logging.INFO, "ephemera"):
            await site._prewarm_and_log()
    assert len(asked) == 1
    assert [record.getMessage() for record in caplog.records] == []
