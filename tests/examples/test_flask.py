"""The Flask example, with gunicorn: two processes of four threads, forked after the import."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ephemera.embedded import free_ports
from tests.examples.running import lines_of, listens, running


@pytest.fixture
def address(server: Any, tmp_path: Path) -> Iterator[str]:
    """The address of the running example."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = ["gunicorn", "--preload", "--workers", "2", "--threads", "4", "--bind", f"127.0.0.1:{port}"]
    log = tmp_path / "log"
    with running("flask", [*command, "shop:app"], log, listens(address), REDIS_URL=server.url):
        yield address


def test_the_example_is_short() -> None:
    """It fits on two screens."""
    assert lines_of("flask") < 120


def test_the_example_serves(address: str) -> None:
    """A cart, a sign-in, a page and its change, a limit, and a sign-out everywhere, over HTTP."""
    with httpx.Client(base_url=address, timeout=30) as browser, httpx.Client(base_url=address) as other:
        assert browser.post("/cart/tea").json() == {"items": 1, "total": 4}
        visitor = browser.cookies["session"]
        assert browser.post("/login", data={"user": "ann"}).text == "Welcome, ann"
        assert browser.cookies["session"] != visitor
        assert browser.post("/cart/cup").json() == {"items": 2, "total": 13}
        first = browser.get("/products/tea")
        seen = {"if-none-match": first.headers["etag"]}
        assert (first.json(), browser.get("/products/tea", headers=seen).status_code) == (
            {"name": "tea", "price": 4},
            304,
        )
        assert other.put("/products/tea/price", data={"price": "5"}).status_code == 401
        assert browser.put("/products/tea/price", data={"price": "5"}).json() == {"removed": True}
        assert browser.get("/products/milk").status_code == 404
        codes = [other.post("/login", data={"user": "ann"}).status_code for _ in range(5)]
        assert codes == [200] * 4 + [429]
        assert browser.post("/logout-everywhere").json() == {"ended": 2}
        assert other.post("/logout-everywhere").status_code == 401


def test_processes_and_threads_share_what_is_stored(address: str) -> None:
    """Many visitors at once: each keeps a cart of their own, whichever process and thread serves them."""

    def visit(_: int) -> int:
        with httpx.Client(base_url=address, timeout=30) as browser:
            totals = [browser.post("/cart/cup").json()["total"] for _ in range(3)]
            return int(totals[-1])

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(visit, range(16))) == {27}
