"""The page of slides in a browser, for its tests: its profile, a sign-in, and its looks.

With EPHEMERA_SCREENSHOTS, a folder, the tests also save pictures of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ephemera_services.runtime import DEMO_PASSWORD
from tests.browsers import wait_until
from tests.services.services import Served
from tests.services.slides_users import EDITOR, Person

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SCREENSHOTS = os.environ.get("EPHEMERA_SCREENSHOTS")
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
LOOKS = (("light", DESK), ("dark", DESK), ("phone", PHONE), ("phone-dark", PHONE))


@contextmanager
def visiting(browser: Any, url: str) -> Iterator[Any]:
    """The page in a profile of its own, which has no error and asks no other host."""
    errors: list[str] = []
    hosts: set[str] = set()
    with browser.new_context(viewport=DESK) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(url + "/")
        yield page
    assert errors == []
    assert hosts <= {urlsplit(url).netloc, ""}


def sign_in(page: Any, email: str = EDITOR, password: str = DEMO_PASSWORD) -> None:
    """Fill and send the form of a sign-in."""
    page.get_by_label("Organization").fill("Company")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


_CONTRAST = """() => {
  const channel = c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const behind = node => { for (; node; node = node.parentElement) {
    const color = rgb(getComputedStyle(node).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color; } return [255, 255, 255]; };
  const texts = "h1, h2, h3, p, li, th, td, label, legend, a, button, small, strong, span, summary";
  const seen = [...document.querySelectorAll(texts)]
    .filter(node => node.offsetParent && !node.disabled
      && [...node.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim()));
  return seen.map(node => {
    const [one, two] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    return [(Math.max(one, two) + .05) / (Math.min(one, two) + .05), node.textContent.trim().slice(0, 40)]; })
    .filter(([ratio]) => ratio < 4.5);
}"""


def inspect(page: Any, name: str, *, whole: bool = False) -> None:
    """In light, dark and on a phone nothing is wider than the screen, and text has enough contrast.

    Pictures are saved if they are wanted: of what is on the screen, or of the whole page.
    """
    for look, size in LOOKS:
        page.emulate_media(color_scheme="dark" if "dark" in look else "light", reduced_motion="reduce")
        page.set_viewport_size(size)
        wait_until(page, f"innerWidth === {size['width']}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, look)
        pale = page.evaluate(_CONTRAST)
        assert pale == [], (name, look, pale)
        if SCREENSHOTS is not None:
            page.evaluate("document.getElementById('toasts').replaceChildren()")
            page.screenshot(path=Path(SCREENSHOTS) / f"page-{name}-{look}.png", full_page=whole)
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")


def open_deck(page: Any, slides: Served, presentation_id: str) -> None:
    """Open a presentation by its address."""
    page.goto(f"{slides.url}/#/p/{presentation_id}")
    playwright.expect(page.locator("#stage h2")).to_be_visible()


def presentation(person: Person, topic: str, slides: int, **more: Any) -> str:
    """The id of a presentation that is written."""
    begun = person.begin(topic, slides, **more)
    assert person.finished(begun["job_id"])["state"] == "done"
    return begun["presentation_id"]
