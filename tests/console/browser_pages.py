"""Helpers for pages in a browser: rows, tiles, buttons, and waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

READY = "window.did_handshake && document.querySelector('.e-tile-value')?.textContent !== '\u2014'"
"""The page is connected, and was refreshed: what is typed now stays."""
FITS = "document.documentElement.scrollWidth <= window.innerWidth"
"""Nothing is wider than the window; plots follow it a moment later."""
SHIFTS = """
window.shifts = [];
new PerformanceObserver(list => list.getEntries().forEach(each => window.shifts.push(each.value)))
  .observe({type: 'layout-shift', buffered: false});
"""
"""Collects how much of the page moves from now on, in `window.shifts`."""
PATIENCE = 60.0  # seconds; machines that run tests are busy


def expect(found: Any) -> Any:
    """Playwright's assertions, which wait."""
    from playwright.sync_api import expect as waiting

    return waiting(found)


def tile(page: Any, label: str) -> Any:
    """The value of the tile with this label."""
    return page.locator(".e-tile", has=page.get_by_text(label, exact=True)).locator(".e-tile-value")


def region(page: Any, name: str) -> Any:
    """The card with this heading."""
    return page.get_by_role("region", name=name, exact=True)


def row_of(page: Any, *texts: str) -> Any:
    """The first table row that contains all texts."""
    rows = page.locator(".e-table tbody tr")
    for text in texts:
        rows = rows.filter(has_text=text)
    return rows.first


def press(page: Any, where: Any, button: str) -> None:
    """Press a button, and confirm."""
    where.get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def eventually(holds: Callable[[], Any], what: str) -> Any:
    """Poll until a function returns something true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}"
        time.sleep(0.02)
    return found
