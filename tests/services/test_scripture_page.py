"""The reading page in a real browser: chapters, verses, search and questions.

With EPHEMERA_SCREENSHOTS, a folder, the last test also saves pictures of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ephemera.embedded import Valkey
from tests.browsers import STORAGE_BLOCKED, running_browser, wait_until
from tests.services.scripture_readers import UNLIMITED, reading
from tests.services.services import Served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SCREENSHOTS = os.environ.get("EPHEMERA_SCREENSHOTS")
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def served(
    places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with its own corpus, and few questions an hour."""
    limits = {**UNLIMITED, "EPHEMERA_SCRIPTURE_AI_FREE": "8"}
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **limits) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this machine."""
    with running_browser() as running:
        yield running


class Visit:
    """The page in a browser profile of its own."""

    def __init__(self, browser: Any, served: Served, script: str = "", **options: Any) -> None:
        self.served = served
        self.context = browser.new_context(**{"viewport": DESK, **options})
        self.context.add_init_script(script)
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def _note(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.problems.append(message.text)

    def open(self, fragment: str = "") -> None:
        """Open the page at an address."""
        self.page.goto(f"{self.served.url}/{fragment}")
        playwright.expect(self.page.locator("body")).to_have_attribute("data-ready", "1")

    def shows(self, where: str, text: str) -> None:
        """Wait until a part of the page has a text."""
        playwright.expect(self.page.locator(where)).to_contain_text(text)


@pytest.fixture
def visit(browser: Any, served: Served) -> Iterator[Visit]:
    """A first visit; nothing failed, and nothing was asked of another host."""
    visiting = Visit(browser, served)
    yield visiting
    visiting.context.close()
    assert visiting.problems == []
    assert visiting.hosts <= {urlsplit(served.url).netloc, ""}


def test_a_reader_turns_pages_and_opens_a_verse(visit: Visit) -> None:
    """From Genesis to the next chapter, a verse with its words, and another translation, which is kept."""
    visit.open()
    visit.shows("#title", "Genesis 1")
    assert visit.page.locator(".verse").count() == 31
    visit.page.locator("#next").click()
    visit.shows("#title", "Exodus 20")
    visit.page.locator("#book").select_option("john")
    visit.shows("#title", "John 1")
    visit.page.get_by_role("link", name="3", exact=True).click()
    visit.shows("#title", "John 3")
    visit.page.locator("#v16").click()
    visit.shows("#verse", "World English Bible")
    visit.shows("#verse", "ἠγάπησεν")
    visit.page.mouse.click(5, 5)
    playwright.expect(visit.page.locator("#verse")).to_be_hidden()
    visit.page.locator("#v16").click()
    visit.page.get_by_role("link", name="The greatest of these is love").click()
    visit.shows("#title", "1 Corinthians 13")
    playwright.expect(visit.page.locator("#v13")).to_be_focused()
    visit.page.locator("#translation").select_option("web")
    visit.shows("#verses", "now faith, hope, and love remain")
    visit.page.reload()
    visit.shows("#verses", "now faith, hope, and love remain")


def test_of_many_chapters_one_is_picked(visit: Visit) -> None:
    """Where a row of links would be too long, as for all of the Psalms, a list has the chapters."""

    def all_psalms(route: Any) -> None:
        answer = route.fetch()
        books = answer.json()
        (psalms,) = (each for each in books["books"] if each["id"] == "ps")
        psalms["chapters"] = {str(number): 6 for number in range(1, 151)}
        route.fulfill(response=answer, json=books)

    visit.page.route("**/books?*", all_psalms)
    visit.open("#/read/ps/8")
    playwright.expect(visit.page.locator("#chapters")).to_be_hidden()
    visit.page.locator("#chapter").select_option("23")
    visit.shows("#title", "Psalm 23")
    playwright.expect(visit.page.locator("#chapter")).to_have_value("23")
    visit.page.locator("#book").select_option("john")
    visit.shows("#title", "John 1")
    playwright.expect(visit.page.locator("#chapter")).to_be_hidden()


def test_it_works_where_storage_is_blocked(browser: Any, served: Served) -> None:
    """Where the browser refuses its storage, the chosen translation lasts as long as the page."""
    visiting = Visit(browser, served, STORAGE_BLOCKED)
    visiting.open("#/read/1cor/13")
    visiting.page.locator("#translation").select_option("web")
    visiting.shows("#verses", "now faith, hope, and love remain")
    visiting.context.close()
    assert visiting.problems == []


def test_what_was_asked_for_last_is_shown(visit: Visit) -> None:
    """A chapter that arrives after another one was opened does not replace it."""
    visit.open("#/read/gen/1")
    held: list[Any] = []
    visit.page.route("**/chapters/john.1?*", lambda route: held.append(route))
    visit.page.locator("#book").select_option("john")
    wait_until(visit.page, "location.hash === '#/read/john'")
    visit.page.locator("#book").select_option("rom")
    visit.shows("#title", "Romans 8")
    with visit.page.expect_response("**/chapters/john.1?*"):
        held[0].continue_()
    playwright.expect(visit.page.locator("body")).to_have_attribute("data-ready", "3")
    visit.shows("#title", "Romans 8")
    playwright.expect(visit.page.locator("#notice")).to_be_hidden()


def test_a_search_marks_what_it_found(visit: Visit) -> None:
    """Hits are marked and lead to their chapters; a book narrows them; markup in a query stays text."""
    visit.open("#/search")
    visit.shows("#topics", "Light and darkness")
    visit.page.get_by_label("Words to search for").fill("said darkness")
    visit.page.get_by_role("button", name="Search").click()
    visit.shows("#found", "with some")
    playwright.expect(visit.page.locator("#hits mark").first).to_have_text("darkness")
    visit.page.locator("#within").select_option("john")
    visit.shows("#hits", "John 1:5")
    playwright.expect(visit.page.locator("#hits")).not_to_contain_text("Genesis")
    visit.page.get_by_role("link", name="John 1:5").click()
    visit.shows("#title", "John 1")
    visit.page.goto(f"{visit.served.url}/#/search?q=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E")
    visit.shows("#found", "No verse")
    assert visit.page.locator("#hits img").count() == 0


def test_a_question_is_answered_with_its_sources(visit: Visit) -> None:
    """The answer comes with its sources, and again from the cache; about a verse, that one comes first."""
    visit.open("#/ask")
    visit.page.get_by_role("button", name="What is said about love?").click()
    visit.shows("#answer", "these passages match best")
    visit.shows("#sources", "love")
    playwright.expect(visit.page.get_by_role("button", name="What is said about love?")).to_be_enabled()
    _picture(visit, "ask-desk-light")
    visit.page.emulate_media(color_scheme="dark")
    visit.page.set_viewport_size(PHONE)
    _picture(visit, "ask-phone-dark")
    visit.page.set_viewport_size(DESK)
    visit.page.get_by_role("button", name="Ask", exact=True).click()
    visit.shows("#how", "Answered before.")
    visit.page.goto(f"{visit.served.url}/#/read/ps/23")
    visit.page.locator("#v1").click()
    visit.page.get_by_role("button", name="Ask about this verse").click()
    visit.shows("#about", "About Psalm 23:1")
    visit.page.get_by_label("Your question").fill("Who is meant?")
    visit.page.get_by_role("button", name="Ask", exact=True).click()
    visit.shows("#sources li:first-child", "Psalm 23:1")
    visit.page.get_by_role("button", name="Ask about any passage").click()
    playwright.expect(visit.page.locator("#about")).to_be_hidden()


def test_what_fails_is_said(visit: Visit) -> None:
    """Without a connection, and beyond the limit of questions, the page says so and works afterwards."""
    visit.open("#/ask")
    visit.context.set_offline(True)
    visit.page.get_by_label("Your question").fill("Is anybody there?")
    visit.page.get_by_role("button", name="Ask", exact=True).click()
    visit.shows("#notice", "There is no connection.")
    visit.context.set_offline(False)
    button = visit.page.get_by_role("button", name="Ask", exact=True)
    for number in range(9):
        visit.page.get_by_label("Your question").fill(f"Is this number {number}?")
        ready = int(str(visit.page.locator("body").get_attribute("data-ready")))
        button.click()
        playwright.expect(visit.page.locator("body")).to_have_attribute("data-ready", str(ready + 1))
    visit.shows("#notice", "Please wait")


def test_the_service_comes_with_content_worth_asking(served: Served) -> None:
    """330 verses of a dozen books, topics whose passages are all there, and a lexicon."""
    translations = {
        each["id"]: each["verses"] for each in served.client.get("/translations").json()["translations"]
    }
    assert translations["kjv"] == 330
    books = served.client.get("/books", params={"translation": "kjv"}).json()["books"]
    assert [each["id"] for each in books] == [
        "gen",
        "exod",
        "ps",
        "eccl",
        "isa",
        "matt",
        "john",
        "rom",
        "1cor",
    ]
    topics = served.client.get("/topics").json()["topics"]
    assert len(topics) == 8
    for topic in topics:
        assert served.client.get(f"/topics/{topic['id']}").json()["passages"]
    for word in ("g5457", "h7965"):
        assert served.client.get(f"/lexicon/{word}").status_code == 200


def test_it_fits_a_phone_and_follows_the_colour_scheme(browser: Any, served: Served) -> None:
    """No part scrolls sideways on a phone, and dark pages are dark."""
    grounds = set()
    for size, scheme in ((PHONE, "light"), (PHONE, "dark"), (DESK, "light"), (DESK, "dark")):
        visit = Visit(browser, served, viewport=size, color_scheme=scheme)
        for name, fragment in (
            ("read", "#/read/ps/23"),
            ("search", "#/search?q=light"),
            ("topics", "#/search"),
        ):
            visit.open(fragment)
            visit.page.wait_for_load_state("networkidle")
            width = visit.page.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"], (name, width)
            _picture(visit, f"{name}-{'phone' if size is PHONE else 'desk'}-{scheme}")
            grounds.add((scheme, visit.page.evaluate("getComputedStyle(document.body).backgroundColor")))
            visit.page.goto("about:blank")
        visit.context.close()
        assert visit.problems == []
    assert len({ground for _, ground in grounds}) == len(grounds) == 2


def _picture(visit: Visit, name: str) -> None:
    if SCREENSHOTS:
        visit.page.mouse.move(0, 0)
        visit.page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"))
