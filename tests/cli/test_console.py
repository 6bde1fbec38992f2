"""`ephemera console`: what it refuses before it starts, and what it prints."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from ephemera import Catalogue, fixed
from ephemera.embedded import Valkey
from tests.cli.commands import ephemera
from tests.console.console_process import COMMAND, PASSWORD, running_console

HERE = ("console", "--url", "redis://127.0.0.1:1", "--catalogue", "identity")
overlapping = Catalogue("overlapping")
overlapping.value("session_index:{name}", str, lifetime=fixed(minutes=1), purpose="Also a key of identity")
LONG = {"EPHEMERA_CONSOLE_PASSWORD": "long enough for others"}


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (("--host", "0.0.0.0"), LONG, "give its URL with --public-url"),
        (("--host", "10.1.2.3"), LONG, "can be reached from other machines"),
        (("--public-url", "https://console.example"), {}, "set EPHEMERA_CONSOLE_PASSWORD"),
        (("--public-url", "https://console.example"), {"EPHEMERA_CONSOLE_PASSWORD": "short"}, "at least 12"),
        (("--public-url", "console.example"), LONG, "is not https://host"),
        (("--public-url", "https://console.example/below"), LONG, "is not https://host"),
        (("--trusted-proxy", "proxy.internal"), {}, "does not appear to be"),
        (("--user", " "), {}, "it must not be empty"),
        (("--metrics-url", "file:///etc/passwd"), {}, "is not http://"),
        ((), {"EPHEMERA_CONSOLE_ACCOUNTS": "ada look a-password"}, "line 1 of EPHEMERA_CONSOLE_ACCOUNTS"),
        ((), {"EPHEMERA_CONSOLE_ACCOUNTS": "ada view a\nada view b"}, "taken by another account"),
    ],
)
def test_unsafe_settings_are_refused(
    words: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    """Access from other machines needs a public URL and a password, and the error says what is missing."""
    outcome = ephemera(*HERE, *words, env=environment)
    assert outcome.code == 2
    assert message in outcome.said


def test_catalogues_that_overlap_are_refused() -> None:
    """Two catalogues that could own the same key are refused by name."""
    ended = _ended(*HERE, "--catalogue", "tests.cli.test_console:overlapping")
    assert ended.returncode == 2
    assert "ephemera: 'session_index:{name}': overlaps" in ended.stderr


def test_without_a_password_one_is_generated_and_printed_once(tmp_path: Path, server: Valkey) -> None:
    """The printed password signs in and is not logged; Ctrl-C ends the process cleanly."""
    program = (COMMAND, "console", "--user", "ada")
    with running_console(tmp_path, server.url, password="", program=program) as console:
        printed = re.search(r"until the next start: (\S+)", console.said)
        assert printed is not None
        form = {"user": "ada", "password": printed[1]}
        answer = httpx.post(f"{console.url}/sign-in", data=form, headers={"origin": console.url})
        assert answer.status_code == 303
        assert console.said.count(printed[1]) == 1
        console.process.send_signal(signal.SIGINT)
        assert console.process.wait(20) in (0, -signal.SIGINT)
        assert "Traceback" not in console.said


def test_behind_a_proxy_it_uses_the_public_url(tmp_path: Path, server: Valkey) -> None:
    """Requests forwarded by a TLS proxy get a secure cookie; other host names are refused."""
    url = "https://console.example"
    with running_console(tmp_path, server.url, "--public-url", url) as console:
        form = {"user": "operator", "password": PASSWORD}
        handed_on = {"host": "console.example", "origin": url}
        answer = httpx.post(f"{console.url}/sign-in", data=form, headers=handed_on)
        assert answer.headers["set-cookie"].startswith("__Host-ephemera-console=")
        assert "; Secure" in answer.headers["set-cookie"]
        foreign = {"host": "other.example", "origin": "https://other.example"}
        assert httpx.post(f"{console.url}/sign-in", data=form, headers=foreign).status_code == 421

        second = _ended(*HERE, "--port", str(console.port))
        assert second.returncode == 1, "a port that is taken is message"
        assert f"port {console.port} of 127.0.0.1 is taken" in second.stderr
        assert not second.stdout, "no password is made for it"


def _ended(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a separate process, because it configures logging."""
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=100, check=False)
