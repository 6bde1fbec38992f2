"""The load on a league: one command plays users, and prints figures and advice."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.services.services import environment

pytestmark = pytest.mark.skipif(
    not Path(sys.executable).with_name("locust").exists(), reason="locust is not installed"
)


@pytest.mark.campaign
@pytest.mark.parametrize("scenario", ["realistic", "prewarm"])
def test_a_scenario_prints_figures_and_advice(scenario: str, tmp_path: Path) -> None:
    """The report has hit ratio, p95, p99, errors and advice; nothing was refused; two runs can be drawn."""
    picture = tmp_path / "prewarm.svg"
    words = [sys.executable, "-m", "ephemera_services.league.load", scenario, "--users", "40"]
    words += ["--seconds", "6", "--arrive", "2", "--plot", str(picture)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False, env=environment())
    assert "errors      0\n" in done.stdout, done.stdout + done.stderr
    for figure in ("hit ratio", "p95", "p99", "advice", "evicted", "of responses"):
        assert done.stdout.count(figure) >= (2 if scenario == "prewarm" else 1)
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    if scenario == "prewarm":
        assert "prewarm on\n" in done.stdout
        assert "prewarm off\n" in done.stdout


class _Hasty(BaseHTTPRequestHandler):
    """Answers once, and hangs up without saying so."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A page, or 304 for who has it."""
        known = self.headers["if-none-match"] == '"a"'
        body = b"" if known else b"x" * 100_000
        self.send_response(304 if known else 200)
        self.send_header("ETag", '"a"')
        if not known:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_players_connection_is_opened_again() -> None:
    """A service that hung up between two requests is asked again, as a browser does; pages are read whole."""
    from ephemera_services.league.load.connection import LoadConnection

    with ThreadingHTTPServer(("127.0.0.1", 0), _Hasty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = LoadConnection("127.0.0.1", server.server_port, "10.0.0.1")
        try:
            assert connection.get("/", None) == (200, '"a"', b"x" * 100_000)
            assert connection.get("/", '"a"') == (304, '"a"', b"")
            assert connection.get("/", None)[0] == 200
        finally:
            connection.close()
            server.shutdown()


_TALKATIVE = """
import random, sys
from locust.env import Environment
from ephemera_services.league.load.locustfile import Supporter
random.random = lambda: 0.0  # every user comments
Supporter.host = sys.argv[1]
supporter = Supporter(Environment(user_classes=[Supporter], host=sys.argv[1]))
supporter.on_start()
supporter.watch()
supporter.on_stop()
"""


class _Listening(BaseHTTPRequestHandler):
    """Notes what is posted."""

    protocol_version = "HTTP/1.1"
    posted: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """A match in which nothing moves."""
        self._answer(b"{}")

    def do_POST(self) -> None:
        """Whatever is posted is fine."""
        self.rfile.read(int(self.headers["content-length"]))
        self.posted.append(self.path.rpartition("/")[2])
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("ETag", '"a"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_supporter_says_nothing_before_signing_in() -> None:
    """Opening the match is only looking: one who spoke then, as one in twenty did, was refused."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Listening) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = [sys.executable, "-c", _TALKATIVE, f"http://127.0.0.1:{server.server_port}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert _Listening.posted == ["users", "session", "votes", "comments"]
