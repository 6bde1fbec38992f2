"""The Celery example: a prefork worker, and the web page that orders from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from ephemera.embedded import free_ports, valkey
from tests.examples.running import lines_of, listens, running

NAMES = [f"picture{n}" for n in range(15)]


@pytest.fixture
def address(server: Any, tmp_path: Path) -> Iterator[str]:
    """The address of the running web page; a worker of two processes runs beside it."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    log = tmp_path / "worker"
    with valkey(port=free_ports(1)[0], password="") as broker:
        variables = {"REDIS_URL": server.url, "BROKER_URL": broker.url}
        worker = [
            "celery",
            "--app",
            "thumbnails:celery",
            "worker",
            "--concurrency",
            "2",
            "--loglevel",
            "INFO",
        ]
        web = ["flask", "--app", "thumbnails", "run", "--port", str(port)]
        with (
            running("celery", worker, log, lambda: "ready." in log.read_text(), **variables),
            running("celery", web, tmp_path / "web", listens(address), **variables),
        ):
            yield address


def test_the_example_is_short() -> None:
    """It fits on two screens."""
    assert lines_of("celery") < 120


def test_the_example_works(address: str) -> None:
    """Each order is drawn once, by processes that share the limit of ten a second and the locks."""
    with httpx.Client(base_url=address, timeout=30) as browser:
        assert browser.get("/thumbnails/nothing").status_code == 404
        began = monotonic()
        for name in NAMES:
            assert browser.post(f"/thumbnails/{name}").status_code == 202
        for _ in range(2):
            browser.post(f"/thumbnails/{NAMES[0]}")
        shown = [_finished(browser, name, 3 if name == NAMES[0] else 1) for name in NAMES]
        assert monotonic() - began > 0.9  # seventeen calls, of which ten a second are allowed
        assert all(each["process"] for each in shown)


def _finished(browser: httpx.Client, name: str, attempts: int) -> dict[str, Any]:
    """The state of a thumbnail, when it was drawn this many times."""
    deadline = monotonic() + 60
    while True:
        answer = browser.get(f"/thumbnails/{name}")  # 404 until a worker has begun
        shown: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        if shown.get("state") == "done" and shown["attempts"] == attempts:
            return shown
        assert monotonic() < deadline, shown
        sleep(0.05)
