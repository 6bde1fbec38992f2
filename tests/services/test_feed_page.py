"""Feed's reader in a real browser: signing in with a token, reading, marking, and something new.

With EPHEMERA_SCREENSHOTS, a folder, the last test also saves pictures of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.feed_headlines import STORIES
from tests.browsers import STORAGE_BLOCKED, running_browser
from tests.services.feed_users import TOKEN, Caller, feeding, texts, working

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SCREENSHOTS = os.environ.get("EPHEMERA_SCREENSHOTS")
LOOKS = (
    ("light", {"width": 1280, "height": 800}),
    ("dark", {"width": 1280, "height": 800}),
    ("phone", {"width": 390, "height": 844}),
)
SOURCES = ("The Example", "Morning Post", "Daily Wire", "City Herald", "World Desk")


@pytest.fixture(scope="module")
def caller(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A service with a worker, and a reader with a dozen stories."""
    folder = tmp_path_factory.mktemp("logs")
    with feeding(folder, places) as running, working(folder, places):
        now = datetime.now(UTC)
        insights = [
            {
                "channel_id": "world",
                "text": headline,
                "source": SOURCES[wording],
                "url": f"https://{story}.example/{wording}",
                "published_at": (now - timedelta(hours=2 * number + wording)).isoformat(),
                "language": "en",
            }
            for number, (story, headlines) in enumerate(STORIES.items())
            for wording, headline in enumerate(headlines)
        ]
        running.http.post("/feed/bulk/insights", json={"insights": insights}).raise_for_status()
        running.subscribe("ann", "world", plan="pro")
        running.wait_for_version("ann", 1)
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this machine."""
    with running_browser() as running:
        yield running


class Visit:
    """The page in a browser profile of its own."""

    def __init__(self, browser: Any, caller: Caller, script: str = "", **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": LOOKS[0][1], **options})
        self.context.add_init_script(script)
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.goto(f"{caller.served.url}/")

    def sign_in(self, user: str = "ann", token: str = TOKEN) -> None:
        """Sign in with the form."""
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Read", exact=True).click()

    @property
    def articles(self) -> Any:
        """The items that are shown."""
        return self.page.locator("article:visible")


@pytest.fixture
def visit(browser: Any, caller: Caller) -> Iterator[Visit]:
    """A first visit; nothing failed, and nothing was asked of another host."""
    visiting = Visit(browser, caller)
    yield visiting
    visiting.context.close()
    assert visiting.problems == []
    assert visiting.hosts <= {urlsplit(caller.served.url).netloc, ""}


def test_a_reader_signs_in_with_a_token_that_stays_in_the_tab(visit: Visit, caller: Caller) -> None:
    """A wrong token and an unknown user are refused in words; the token is in this tab's session only."""
    visit.sign_in(token="not-the-token-of-feed")
    playwright.expect(visit.page.get_by_role("alert").first).to_have_text("The token is wrong.")
    visit.sign_in(user="unknown")
    playwright.expect(visit.page.get_by_role("alert").first).to_contain_text("There is no user 'unknown'")
    visit.sign_in()
    playwright.expect(visit.page.get_by_role("heading", name="What is new")).to_be_visible()
    assert visit.page.evaluate("localStorage.length") == 0
    assert visit.context.cookies() == []
    assert TOKEN not in visit.page.url
    visit.page.reload()
    playwright.expect(visit.page.locator("#who")).to_contain_text("ann")
    visit.page.get_by_role("button", name="Sign out").click()
    playwright.expect(visit.page.get_by_label("Token")).to_have_value("")
    assert visit.page.evaluate("sessionStorage.length") == 0
    policy = caller.http.get("/", headers={"authorization": ""}).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_it_works_where_storage_is_blocked(browser: Any, caller: Caller) -> None:
    """Where the browser refuses its storage, the token lasts as long as the page."""
    visiting = Visit(browser, caller, STORAGE_BLOCKED)
    visiting.sign_in()
    playwright.expect(visiting.articles.first).to_be_visible()
    visiting.page.get_by_role("button", name="Sign out").click()
    playwright.expect(visiting.page.get_by_label("Token")).to_be_visible()
    visiting.context.close()
    assert visiting.problems == []


def test_reading_an_item_marks_it(visit: Visit) -> None:
    """An item that is opened shows its insights with their sources, is read, and can be unread again."""
    visit.sign_in()
    first = visit.articles.first
    title = first.get_by_role("heading").inner_text()
    first.get_by_role("button", name=re.compile("Show .* insights")).click()
    links = first.get_by_role("link")
    playwright.expect(links.first).to_have_attribute("rel", "noopener noreferrer")
    assert links.count() >= 3
    playwright.expect(first.locator("li .meta").first).to_contain_text(re.compile("|".join(SOURCES)))
    playwright.expect(first).to_have_class("read")
    unread = len(STORIES) - 1
    playwright.expect(visit.page.locator("#about")).to_contain_text(f"{unread} unread")
    playwright.expect(visit.page).to_have_title(f"({unread}) Feed")
    visit.page.get_by_label("Unread only").check()
    playwright.expect(visit.articles.filter(has_text=title)).to_have_count(0)
    visit.page.get_by_label("Unread only").uncheck()
    visit.page.reload()
    again = visit.articles.filter(has_text=title)
    playwright.expect(again).to_have_class("read")
    again.get_by_role("button", name="Mark as unread").click()
    playwright.expect(visit.articles.filter(has_text=title)).to_have_class("")


def test_something_new_is_announced_and_hostile_text_is_text(visit: Visit, caller: Caller) -> None:
    """A new version is announced without moving what is read; markup in insights is shown as text."""
    caller.publish("alarm", *texts("space", 4))
    caller.subscribe("eve", "alarm", plan="pro")
    caller.wait_for_version("eve", 1)
    visit.sign_in("eve")
    playwright.expect(visit.articles).to_have_count(1)
    hostile = "<img src=x onerror=alert(1)> markup <b>is</b> news"
    caller.publish(
        "alarm", *(f"{hostile}, says report {number}" for number in ("one", "two", "three", "four"))
    )
    news = visit.page.get_by_role("button", name="There is something new")
    playwright.expect(news).to_be_visible()
    playwright.expect(visit.articles).to_have_count(1)
    news.click()
    playwright.expect(visit.articles).to_have_count(2)
    playwright.expect(visit.page.get_by_role("heading", name="<img src=x")).to_be_visible()
    assert visit.page.locator("article img").count() == 0


def test_an_empty_feed_fills_by_itself(visit: Visit, caller: Caller) -> None:
    """Who waits for a first version sees it when it is there, without a button."""
    caller.subscribe("una", "dawn", plan="pro")
    visit.sign_in("una")
    playwright.expect(visit.page.locator("#empty")).to_contain_text("Nothing yet")
    caller.publish("dawn", *texts("space", 4))
    playwright.expect(visit.articles).to_have_count(1)
    playwright.expect(visit.page.locator("#news")).to_be_hidden()


def test_only_what_was_shown_becomes_read(visit: Visit, caller: Caller) -> None:
    """An item that is marked while a newer version waits keeps as unread what that version added to it."""
    caller.publish("orbit", *texts("space", 4))
    caller.subscribe("ivy", "orbit", plan="pro")
    caller.wait_for_version("ivy", 1)
    visit.sign_in("ivy")
    playwright.expect(visit.articles).to_have_count(1)
    later = [{"channel_id": "orbit", "text": text} for text in texts("space", 8)[4:]]
    caller.http.post("/feed/bulk/insights", json={"insights": later}).raise_for_status()
    news = visit.page.get_by_role("button", name="There is something new")
    playwright.expect(news).to_be_visible()
    visit.articles.first.get_by_role("button", name="Mark as read").click()
    playwright.expect(visit.articles.first).to_have_class("read")
    news.click()
    playwright.expect(visit.articles.first.locator(".tag")).to_have_text("4 unread")


@pytest.mark.parametrize(("look", "viewport"), LOOKS, ids=[look for look, _ in LOOKS])
def test_it_fits_every_screen(browser: Any, caller: Caller, look: str, viewport: dict[str, int]) -> None:
    """Nothing is wider than the screen, on a phone and a desk, light and dark; buttons are large enough."""
    visit = Visit(browser, caller, viewport=viewport, color_scheme="dark" if look == "dark" else "light")
    _picture(visit, f"sign-in-{look}")
    visit.sign_in()
    visit.articles.nth(1).get_by_role("button", name=re.compile("Show")).click()
    visit.articles.nth(1).locator("li").first.wait_for()
    playwright.expect(visit.articles.nth(1)).to_have_class("read")
    width = visit.page.evaluate("document.documentElement.scrollWidth")
    assert width <= viewport["width"]
    heights = visit.page.evaluate(
        "[...document.querySelectorAll('button')].filter(b => b.offsetHeight).map(b => b.offsetHeight)"
    )
    assert min(heights) >= 36
    _picture(visit, f"feed-{look}")
    visit.context.close()
    assert visit.problems == []


def _picture(visit: Visit, name: str) -> None:
    if SCREENSHOTS:
        visit.page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
        visit.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")
