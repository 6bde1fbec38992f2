"""Two servers side by side, and the history of a service beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ephemera import connect, embedded
from ephemera.console._history import Counted, History, HistoryPoint
from ephemera.embedded import Valkey
from tests.console.browser_pages import FITS, expect, region, row_of
from tests.console.console_process import running_console, settled
from tests.console.shop_keys import NOTE, catalogue

CLOSED = "http://127.0.0.1:9/metrics"  # a port that is not listened on


async def write_notes(url: str, count: int) -> None:
    """Some notes of the shop."""
    async with connect(url, catalogue) as store:
        for number in range(count):
            await store[NOTE].put("a note", note_id=str(number))


@pytest.fixture
def pair() -> Iterator[tuple[Valkey, Valkey]]:
    """Two servers of the shop, one with more notes."""
    with embedded.valkey() as first, embedded.valkey() as second:
        settled(write_notes(first.url, 5))
        settled(write_notes(second.url, 8))
        yield first, second


def test_two_servers_are_shown_side_by_side(
    pair: tuple[Valkey, Valkey],
    browse: Callable[..., Any],
    tmp_path: Path,
    picture: Callable[[Any, str], None],
) -> None:
    """Figures of both are in one table, and a keyspace that differs says by how many keys.

    A console that starts with a saved history shows it, even if the service does not respond.
    """
    history = History(tmp_path / "history")
    for minute in range(30, 0, -1):
        durations = [50, 30, 15, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        counted = Counted({NOTE.pattern: (90 + minute % 5, 10)}, durations, {NOTE.pattern: durations})
        history.add(HistoryPoint(time.time() - 60 * minute, {"shop": counted}))
    history.save()
    words = ("--compare-url", pair[1].url, "--history", str(tmp_path / "history"), "--metrics-url", CLOSED)
    with running_console(tmp_path, pair[0].url, *words) as console:
        page = browse(console, "/servers")
        expect(row_of(region(page, "Keyspaces"), NOTE.pattern, "+3")).to_be_visible()
        figures = region(page, "Servers")
        expect(row_of(figures, "Keys").locator("td").nth(1)).to_have_text("5")
        expect(row_of(figures, "Keys").locator("td").nth(2)).to_have_text("8")
        expect(region(page, "Keyspaces")).to_contain_text("1 differ")
        picture(page, "servers")
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function(FITS)
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{console.url}/")
        expect(region(page, "Latency of shop").locator("svg path").first).to_be_attached()
        expect(region(page, "Latency of shop")).to_contain_text("99 %")
        page.goto(f"{console.url}/keyspace?service=shop&keyspace={NOTE.pattern}")
        expect(region(page, "Hit ratio").locator("svg path").first).to_be_attached()
        expect(region(page, "Latency").locator("svg path").first).to_be_attached()
        expect(region(page, "Latency")).to_contain_text("95 %")
