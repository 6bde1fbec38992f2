"""The Django example, with its own database and Django's threaded server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ephemera.embedded import free_ports
from tests.examples.running import EXAMPLES, lines_of, listens, running


@pytest.fixture
def variables(server: Any, tmp_path: Path) -> dict[str, str]:
    """The environment of the example."""
    return {
        "REDIS_URL": server.url,
        "DATABASE": str(tmp_path / "shop.sqlite3"),
        "DJANGO_SUPERUSER_PASSWORD": "secret",
    }


def manage(variables: dict[str, str], *arguments: str) -> str:
    """What `manage.py` prints."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=EXAMPLES / "django",
        env={**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def address(variables: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of the running example, which has the user ann."""
    manage(variables, "migrate", "--verbosity", "0")
    manage(variables, "createsuperuser", "--noinput", "--username", "ann", "--email", "ann@example.com")
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = ["manage", "runserver", "--noreload", str(port)]
    with running("django", command, tmp_path / "log", listens(address), **variables):
        yield address


def test_the_example_is_short() -> None:
    """It fits on two screens."""
    assert lines_of("django") < 120


def test_the_example_serves(address: str, variables: dict[str, str]) -> None:
    """A cart, a sign-in, limits by address and header, and a user's sessions, over HTTP and by manage.py."""
    sign_in = {"user": "ann", "password": "secret"}
    with httpx.Client(base_url=address, timeout=30) as browser, httpx.Client(base_url=address) as other:
        assert browser.post("/cart/tea").json() == {"cart": ["tea"]}
        visitor = browser.cookies["sessionid"]
        assert browser.post("/login", data={**sign_in, "password": "wrong"}).status_code == 403
        assert browser.post("/login", data=sign_in).text == "Welcome, ann"
        assert browser.cookies["sessionid"] != visitor
        added = browser.post("/cart/cup")
        assert added.json() == {"cart": ["tea", "cup"]}
        assert added.headers["ratelimit-policy"] == '"add";q=60;w=60, "site";q=600;w=60'
        found = other.get("/search?words=green+tea", headers={"x-api-key": "k"})
        assert found.json() == {"found": ["green", "tea"]}
        assert found.headers["ratelimit"].startswith('"search";r=19;')
        codes = [other.post("/login", data=sign_in).status_code for _ in range(4)]
        assert codes == [200, 200, 200, 429]
        assert manage(variables, "ephemera", "sessions", "1").count(" until ") == 2
        assert "session:{session_id}" in manage(variables, "ephemera", "audit", "--json")
        assert browser.post("/logout-everywhere").json() == {"ended": 2}
        assert browser.post("/logout-everywhere").status_code == 302
        assert manage(variables, "ephemera", "sign-out", "1") == "0 sessions ended\n"
