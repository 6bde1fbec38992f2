"""The load on a league: one command plays users, and prints figures and advice."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.systems.services import environment

pytestmark = pytest.mark.skipif(
    not Path(sys.executable).with_name("locust").exists(), reason="locust is not installed"
)


@pytest.mark.parametrize("scenario", ["realistic", "prewarm"])
def test_a_scenario_prints_figures_and_advice(scenario: str, tmp_path: Path) -> None:
    """Hit ratio, p95 and p99, errors and the advice are there; nobody was refused; two runs can be drawn."""
    picture = tmp_path / "prewarm.svg"
    words = [sys.executable, "-m", "ephemera.systems.league.load", scenario, "--users", "40"]
    words += ["--seconds", "6", "--arrive", "2", "--plot", str(picture)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False, env=environment())
    assert "errors      0\n" in done.stdout, done.stdout + done.stderr
    for figure in ("hit ratio", "p95", "p99", "advice", "evicted", "of answers"):
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
    from ephemera.systems.league.load.connection import Connection

    with ThreadingHTTPServer(("127.0.0.1", 0), _Hasty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = Connection("127.0.0.1", server.server_port, "10.0.0.1")
        try:
            assert connection.get("/", None) == (200, '"a"', b"x" * 100_000)
            assert connection.get("/", '"a"') == (304, '"a"', b"")
            assert connection.get("/", None)[0] == 200
        finally:
            connection.close()
            server.shutdown()
