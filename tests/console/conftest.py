"""Fixtures of the console's tests: a Valkey with a shop's keys, consoles, a browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ephemera import connect, embedded
from ephemera.embedded import Valkey
from tests.browsers import running_browser
from tests.console.console_process import PASSWORD, USER, RunningConsole, running_console, settled, slug
from tests.console.shop_keys import BASKET, NOTE, ORDERS, PROFILE, SESSION, VISITS, Order, Session, catalogue

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""Hostile content of a key or a value."""
SCREENSHOTS = os.environ.get("EPHEMERA_SCREENSHOTS")
"""A folder to which the browser tests save each page that they look at."""
_LOOKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("light", {"width": 1280, "height": 800}),
    ("dark", {"width": 1280, "height": 800}),
    ("phone", {"width": 390, "height": 800}),
)


@pytest.fixture(scope="session")
def shop_server() -> Iterator[Valkey]:
    """A Valkey with the keys of a shop, some undeclared keys, and some deviations."""
    with embedded.valkey() as server:
        settled(fill(server.url))
        yield server


@pytest.fixture(scope="session")
def console(shop_server: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with actions; tests change only keys of their own."""
    with running_console(tmp_path_factory.mktemp("console"), shop_server.url, "--allow-actions") as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser of this machine; while it runs, a test's own coroutines need `settled` (`consoles`)."""
    with running_browser() as browser:
        yield browser


@pytest.fixture
def browse(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open pages in separate contexts; none may have an error or contact another host."""
    errors: list[str] = []
    contexts: list[Any] = []

    def open_page(console: RunningConsole, path: str = "/", *, sign_in: bool = True, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # milliseconds; machines that run tests are busy
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda asked: errors.extend(_elsewhere(asked.url, console)))
        page.on(
            "console",
            lambda message: (
                errors.append(message.text) if "Content Security Policy" in message.text else None
            ),
        )
        page.goto(console.url + path)
        if sign_in:
            page.get_by_label("User").fill(USER)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in").click()
            page.locator(".e-page").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def picture() -> Callable[[Any, str], None]:
    """Save screenshots in light, dark and phone layout, if EPHEMERA_SCREENSHOTS names a folder."""

    def save(page: Any, name: str) -> None:
        if SCREENSHOTS is None:
            return
        folder = Path(SCREENSHOTS)
        folder.mkdir(parents=True, exist_ok=True)
        page.locator(".q-notification").first.wait_for(state="detached")
        page.evaluate("window.scrollTo(0, 0)")
        for look, size in _LOOKS:
            page.emulate_media(color_scheme="dark" if look == "dark" else "light")
            page.set_viewport_size(size)
            page.wait_for_timeout(600)  # plots follow the size
            page.screenshot(path=folder / f"{slug(name)}-{look}.png")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(_LOOKS[0][1])

    return save


async def fill(url: str) -> None:
    """Write declared keys and deviations."""
    async with connect(url, catalogue) as store:
        for number in range(200):
            session = Session(user=f"secret-user-{number}", role="member")
            await store[SESSION].put(session, session_id=f"secret-id-{number}")
            profile = {"name": f"User {number}", "city": "Utrecht" if number % 2 else "Porto"}
            await store[PROFILE].put(profile, user_id=number)
            await store[VISITS].add(number, page=f"p{number % 40}", day="2026-11-15")
            await store[BASKET].add(f"article {number}", user_id=number % 50)
        for number in range(30):
            await store[ORDERS].append(Order(article=f"article {number}", pieces=number))
        for number in range(25):
            await store.call("SET", f"legacy:{number}", "left behind")
        await store.call("SET", "basket:endless", "no set, and without an end")
        await store.call("SET", "visits:start:today", "no number", "EX", 3600)
        await store[NOTE].put(HOSTILE, note_id=HOSTILE)
        await store[NOTE].put("{{ 7 * 7 }}", note_id="template")
        await store.call("SET", f"stranger:{HOSTILE}", HOSTILE, "EX", 3600)


def _elsewhere(url: str, console: RunningConsole) -> list[str]:
    ours = url.startswith((console.url, console.url.replace("http", "ws", 1), "data:", "blob:"))
    return [] if ours else [f"asked {url}"]
