"""The documentation site, as a reader's browser sees it: search, a phone, the dark theme, no other host."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import running_browser
from tests.docs.pages import ROOT


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning, such as a broken link, fails it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for all tests of the file."""
    with running_browser() as running:
        yield running


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("rate limit", "patterns/rate_limits/"),
        ("sync", "sync/"),
        ("django", "adapters/django/"),
        ("jwt logout", "patterns/revocation/"),
        ("what is in my redis", "operations/infer/"),
    ],
)
def test_search_finds_what_readers_look_for(browser: Any, address: str, words: str, page: str) -> None:
    """The page that answers is among the results."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        reader = context.new_page()
        reader.goto(address)
        reader.locator("input.md-search__input").click()
        reader.locator("input.md-search__input").press_sequentially(words)
        reader.locator(f"a.md-search-result__link[href*='{page}']").first.wait_for(state="attached")


@pytest.mark.parametrize(
    "path", ["", "which-pattern/", "patterns/rate_limits/", "api/ephemera.patterns.locks/"]
)
def test_pages_fit_a_phone_in_the_dark(browser: Any, address: str, path: str) -> None:
    """Nothing but code and tables, which scroll by themselves, is wider than the screen; the page is dark."""
    requested: list[str] = []
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    with context:
        reader = context.new_page()
        reader.on("request", lambda request: requested.append(request.url))
        reader.goto(address + path)
        reader.wait_for_load_state("networkidle")
        assert reader.evaluate("document.documentElement.scrollWidth") <= 390
        background = reader.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", background)[:3])) < 80
    assert requested
    assert [url for url in requested if not url.startswith((address, "data:"))] == []


def test_every_parameter_of_a_pattern_is_explained(site: Path) -> None:
    """The API pages come from docstrings, with a row for each parameter."""
    page = (site / "api/ephemera.patterns.cache/index.html").read_text(encoding="utf-8")
    for parameter in ("fresh", "stale", "freshness_of", "invalidated_by"):
        assert re.search(rf"<code[^>]*>{parameter}</code>", page)
