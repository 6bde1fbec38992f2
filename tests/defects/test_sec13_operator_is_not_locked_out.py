"""SEC13: wrong passwords from ten addresses locked out the operator who had the right one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from ephemera.console import _access as access
from ephemera.console import _known_browsers as browsers
from ephemera.console import _waiting_attempts as waiting_attempts
from ephemera.console._access import ConsoleAccess
from ephemera.console._known_browsers import KnownBrowsers
from ephemera.console._sign_in import SignInRoutes
from ephemera.web import ClientAddress, Cookie

PASSWORD = "the right password"
PROXY = "192.0.2.1"


@pytest.fixture
def known() -> ConsoleAccess:
    """The console's account, and the failures that it counts."""
    return ConsoleAccess("operator", PASSWORD)


@pytest.fixture
async def proxy(known: ConsoleAccess) -> AsyncIterator[httpx.AsyncClient]:
    """A proxy that the console trusts, between it and everyone else."""
    cookie = Cookie("console", same_site="strict", secure=False)
    routes = SignInRoutes(known, cookie, ClientAddress([PROXY])).routes
    transport = httpx.ASGITransport(Starlette(routes=routes), client=(PROXY, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        yield client


async def attempt(proxy: httpx.AsyncClient, password: str, address: str) -> int:
    """The status of an attempt to sign in."""
    form = {"user": "operator", "password": password}
    return (await proxy.post("/sign-in", data=form, headers={"x-forwarded-for": address})).status_code


async def test_sec13_others_attempts_do_not_lock_the_operator_out(
    proxy: httpx.AsyncClient, known: ConsoleAccess
) -> None:
    """However many wrong passwords others send, the right one is accepted, from their addresses, too."""
    for number in range(120):
        assert await attempt(proxy, "wrong", f"10.0.0.{number % 12}") == 401
    assert all(known.wait(f"10.0.0.{number}") > 0 for number in range(12))
    for _ in range(20):  # only failures count
        assert known.wait("203.0.113.7") == 0
        assert await attempt(proxy, PASSWORD, "203.0.113.7") == 303
    assert await attempt(proxy, PASSWORD, "10.0.0.1") == 303  # after a turn that it waits for


async def test_sec13_a_known_browser_is_not_slowed_down_by_its_neighbours(
    proxy: httpx.AsyncClient, known: ConsoleAccess
) -> None:
    """Behind one address, a browser that signed in before has its own attempts."""
    assert await attempt(proxy, PASSWORD, "10.0.0.1") == 303
    browser = proxy.cookies["console-browser"]
    proxy.cookies.clear()
    for _ in range(10):
        assert await attempt(proxy, "wrong", "10.0.0.1") == 401
    assert known.wait("10.0.0.1") > 0
    subject = known.browsers.subject(browser, "operator")
    assert subject is not None
    assert known.wait(subject) == 0
    proxy.cookies.set("console-browser", browser)
    assert await attempt(proxy, PASSWORD, "10.0.0.1") == 303


def test_sec13_browsers_stay_known_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By a secret in a file that no one else can read; not after the password has changed."""
    file = tmp_path / "history.key"
    browser = ConsoleAccess("operator", PASSWORD, secret_file=file).browsers.issue("operator")
    assert file.stat().st_mode & 0o777 == 0o600
    again = ConsoleAccess("operator", PASSWORD, secret_file=file)
    assert again.browsers.subject(browser, "operator")
    assert (
        ConsoleAccess("operator", "another", secret_file=file).browsers.subject(browser, "operator") is None
    )
    file.chmod(0o644)
    assert ConsoleAccess("operator", PASSWORD, secret_file=file).browsers.subject(browser, "operator") is None
    [line] = caplog.records
    assert line.getMessage() == "known browsers are forgotten at a restart"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "planted")
    ConsoleAccess("operator", PASSWORD, secret_file=link)
    assert not (tmp_path / "planted").exists()


async def test_sec13_a_guessed_password_makes_no_cookie(
    proxy: httpx.AsyncClient, known: ConsoleAccess
) -> None:
    """Otherwise each guess could bring a browser of its own, and would wait for no turn."""
    guesser = ConsoleAccess("operator", PASSWORD)
    for _ in range(10):
        assert await attempt(proxy, "wrong", "10.0.0.1") == 401
        assert known.browsers.subject(guesser.browsers.issue("operator"), "operator") is None
    assert known.wait("10.0.0.1") > 0


async def test_sec13_the_link_in_the_log_lets_the_operator_in_during_a_flood(
    proxy: httpx.AsyncClient,
    known: ConsoleAccess,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a new browser at the attacked address, while no attempt there gets a turn; it opens nothing."""
    monkeypatch.setattr(waiting_attempts, "_PATIENCE", 0.0)  # as if others had all the turns
    for _ in range(10):
        assert await attempt(proxy, "wrong", "10.0.0.1") == 401
    assert await attempt(proxy, PASSWORD, "10.0.0.1") == 429
    link = [vars(each)["open"] for each in caplog.records if hasattr(each, "open")][-1]
    assert (await proxy.get(link + "x")).status_code == 200
    assert not proxy.cookies
    answer = await proxy.get(link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert list(proxy.cookies) == ["console-browser"]
    invitation = proxy.cookies["console-browser"]
    assert await attempt(proxy, PASSWORD, "10.0.0.1") == 303
    for number in range(11):  # all who have the link share its attempts
        proxy.cookies.clear()
        proxy.cookies.set("console-browser", invitation)
        assert await attempt(proxy, "wrong", f"10.0.1.{number}") == (401 if number < 10 else 429)


async def test_sec13_a_known_browser_may_not_guess(proxy: httpx.AsyncClient, known: ConsoleAccess) -> None:
    """Its cookie gives as many quick attempts as an address has, and opens nothing by itself."""
    assert await attempt(proxy, PASSWORD, "10.0.0.1") == 303
    browser = proxy.cookies["console-browser"]
    proxy.cookies.clear()
    proxy.cookies.set("console-browser", browser)
    subject = known.browsers.subject(browser, "operator")
    assert subject is not None
    for number in range(10):
        assert known.wait(subject) == 0
        assert await attempt(proxy, "wrong", f"10.0.0.{number}") == 401
    assert known.wait(subject) > 0
    assert await attempt(proxy, "wrong", "10.0.0.200") == 401  # after a turn
    assert known.wait(subject) > 0


@pytest.mark.parametrize("value", ["", "..", "a.b.c", "é.1.2", "\ud800"])
def test_sec13_a_forged_browser_is_unknown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one of another password or user, an altered one, and one that is too old."""
    secret = b"kept in a file"
    known = KnownBrowsers({"operator": PASSWORD, "another user": "another"}, secret)
    assert known.subject(value, "operator") is None
    ours = known.issue("operator")
    assert known.subject(ours, "operator") != known.subject(known.issue("operator"), "operator") is not None
    assert KnownBrowsers({"operator": "another"}, secret).subject(ours, "operator") is None
    altered = ours[:-1] + ("0" if ours[-1] != "0" else "1")
    assert known.subject(altered, "operator") is None
    assert known.subject(ours, "another user") is None
    assert known.subject(ours, "a stranger") is None
    later = time.time() + browsers.MAX_AGE + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert known.subject(ours, "operator") is None


async def test_sec13_an_ipv6_network_counts_as_one_address(
    proxy: httpx.AsyncClient, known: ConsoleAccess
) -> None:
    """A client with 2^64 addresses has ten quick attempts, and another network has its own."""
    for number in range(10):
        assert await attempt(proxy, "wrong", f"2001:db8::{number:x}") == 401
    (network,) = known._failed
    assert known.wait(network) > 0
    assert await attempt(proxy, PASSWORD, "2001:db8:0:1::1") == 303
    assert known.wait(network) > 0


def test_sec13_the_memory_for_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures from very many addresses forget the oldest address, and never refuse a new one."""
    monkeypatch.setattr(access, "_MAX_ADDRESSES", 100)
    known = ConsoleAccess("operator", PASSWORD)
    for number in range(1000):
        known.sign_in("operator", "wrong", str(number))
    assert len(known._failed) == 100
    assert known.wait("another") == 0
