"""The console is closed by default: on loopback, with a password, read-only; `tests/console` has the rest."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from ephemera.console._pages import PAGES
from ephemera.embedded import Valkey
from tests.cli.commands import ephemera
from tests.console.console_process import running_console
from tests.security.guarded import CANARY

_WHERE = ("console", "--url", "redis://127.0.0.1:1", "--catalogue", "identity")


@pytest.mark.parametrize(
    ("words", "password"),
    [
        (("--host", "0.0.0.0"), CANARY),
        (("--host", "::"), CANARY),
        (("--host", "0.0.0.0", "--public-url", "https://console.example"), ""),
        (("--public-url", "https://console.example"), "short"),
    ],
)
def test_it_is_not_opened_to_others_by_accident(
    words: tuple[str, ...], password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who would be reached by others must say by which URL, and have a long password, or does not start."""
    monkeypatch.setenv("EPHEMERA_CONSOLE_PASSWORD", password)
    refused = ephemera(*_WHERE, *words)
    assert refused.code == 2
    assert CANARY not in refused.out + refused.err


def test_no_page_is_shown_to_strangers(server: Valkey, tmp_path: Path) -> None:
    """Every page leads to the sign-in, wrong passwords and cookies do not help, and the log has no secret."""
    password = f"{CANARY} of the console"
    url = server.url.replace("redis://", f"redis://default:{CANARY}@")
    with running_console(tmp_path, url, catalogues=("identity",), password=password) as console:
        for path in ("/", *(page.path for page in PAGES)):
            for headers in (
                {},
                {"cookie": f"ephemera-console={CANARY}", "authorization": f"Bearer {CANARY}"},
            ):
                answer = httpx.get(console.url + path, headers=headers)
                assert answer.status_code in (303, 401), (path, answer.status_code)
        form = {"user": "operator", "password": CANARY}
        wrong = httpx.post(f"{console.url}/sign-in", data=form, headers={"origin": console.url})
        assert wrong.status_code not in (302, 303)
        assert CANARY not in wrong.text
        assert CANARY not in console.said


@pytest.mark.parametrize("public_url", ["https://console.example", None])
def test_browsers_keep_to_tls_where_there_is_tls(
    server: Valkey, tmp_path: Path, public_url: str | None
) -> None:
    """Every response of a console with an https URL has HSTS, of a local one none."""
    words = () if public_url is None else ("--public-url", public_url)
    host = "console.example" if public_url else None
    with running_console(tmp_path, server.url, *words, password=f"{CANARY} of the console") as console:
        for path in ("/sign-in", "/", "/assets/nothing"):
            answer = httpx.get(console.url + path, headers={"host": host} if host else {})
            expected = "max-age=31536000" if public_url else None
            assert answer.headers.get("strict-transport-security") == expected, path
