"""The FastAPI example, with uvicorn."""

from __future__ import annotations

from collections.abc import Iterator
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
    command = ["uvicorn", "shop:app", "--port", str(port)]
    with running("fastapi", command, tmp_path / "log", listens(address), REDIS_URL=server.url):
        yield address


def test_the_example_is_short() -> None:
    """It fits on two screens."""
    assert lines_of("fastapi") < 120


def test_the_example_serves(address: str) -> None:
    """Sign-in, a page with its ETag and its change, an order with its progress, and a limit, over HTTP."""
    with httpx.Client(base_url=address, timeout=30) as browser, httpx.Client(base_url=address) as other:
        assert browser.post("/orders", json=["tea"]).status_code == 401
        assert browser.post("/login", params={"user": "ann"}).status_code == 204
        first = browser.get("/products/tea")
        assert first.json() == {"name": "tea", "price": 4}
        seen = {"if-none-match": first.headers["etag"]}
        assert browser.get("/products/tea", headers=seen).status_code == 304
        assert browser.put("/products/tea/price", params={"price": 5}).status_code == 204
        assert browser.get("/products/tea", headers=seen).json()["price"] == 5
        order_id = browser.post("/orders", json=["tea", "cup"]).json()
        events = browser.get(f"/orders/{order_id}/events").text
        assert events.count('"packed"') == 2
        assert "event: end" in events
        assert [other.post("/login?user=bob").status_code for _ in range(5)] == [204] * 4 + [429]
        assert other.get(f"/orders/{order_id}/events").status_code == 404
