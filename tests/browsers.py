"""The browser of this machine that tests drive: Chromium, best its headless shell.

The shell takes a third of the processor time of the whole browser, which renders for a screen even without
one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
)
STORAGE_BLOCKED = """for (const name of ["localStorage", "sessionStorage"]) {
    Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
}"""
"""What a browser does that blocks the data of sites, as a script for `add_init_script`."""
_TIMEOUT = 60_000  # milliseconds; machines that run tests are busy


def wait_until(page: Any, expression: str, argument: Any = None) -> None:
    """Wait until an expression, or a function of the argument, is true in the page, and keep to its policy.

    The page's own `wait_for_function` evaluates text in the page again and again: a policy without
    `unsafe-eval` refuses that from the second time on.
    """
    limit = time.monotonic() + _TIMEOUT / 1000
    while not page.evaluate(expression, argument):
        assert time.monotonic() < limit, f"not true in {_TIMEOUT} ms: {expression}"
        page.wait_for_timeout(50)


@contextmanager
def running_browser() -> Iterator[Any]:
    """Run a browser; while it runs, a test's own coroutines need a loop in another thread.

    Skips the test where there is no browser.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(f"no browser is installed ({', '.join(_NAMES)})")
    playwright.expect.set_options(timeout=_TIMEOUT)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=list(_FLAGS))
        yield browser
        browser.close()
