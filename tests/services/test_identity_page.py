"""Identity's page in a real browser: sign-in, registration, reset, and one's own account.

With EPHEMERA_SCREENSHOTS, a folder, the last test also saves pictures of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.browsers import running_browser, wait_until
from tests.services.identity_users import PASSWORD, Mailbox, register, sign_in
from tests.services.services import Served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

NEW_PASSWORD = "tomato soup kettle river"
SCREENSHOTS = os.environ.get("EPHEMERA_SCREENSHOTS")
LOOKS = (
    ("light", {"width": 1100, "height": 900}),
    ("dark", {"width": 1100, "height": 900}),
    ("phone", {"width": 390, "height": 844}),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this machine."""
    with running_browser() as running:
        yield running


class Visit:
    """The page in a browser profile of its own."""

    def __init__(self, browser: Any, served: Served) -> None:
        self.served = served
        self.context = browser.new_context(viewport=LOOKS[0][1])
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page = self.open_tab()

    def open_tab(self, fragment: str = "") -> Any:
        """Another tab of the same profile."""
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.goto(f"{self.served.url}/{fragment}")
        return page

    def fill(self, page: Any = None, **fields: str) -> None:
        """Fill the visible form, by the names of its fields."""
        for name, value in fields.items():
            (page or self.page).locator(f"input[name={name}]:visible").first.fill(value)

    def press(self, name: str, page: Any = None) -> None:
        """Press the visible button with a name."""
        (page or self.page).get_by_role("button", name=name, exact=True).click()

    def shows(self, text: str, page: Any = None) -> None:
        """Wait until the visible page has a text."""
        playwright.expect((page or self.page).locator("body")).to_contain_text(text, use_inner_text=True)

    def follow(self, name: str) -> None:
        """Follow a link."""
        self.page.get_by_role("link", name=name).locator("visible=true").click()

    def sign_in(self, email: str, password: str = PASSWORD) -> None:
        """Sign in with the form."""
        self.fill(email=email, password=password)
        self.press("Sign in")
        self.shows("Where you are signed in")


@pytest.fixture
def visit(browser: Any, identity: Served) -> Iterator[Visit]:
    """A first visit; nothing failed, and nothing was asked of another host."""
    visiting = Visit(browser, identity)
    yield visiting
    visiting.context.close()
    assert visiting.problems == []
    assert visiting.hosts <= {urlsplit(identity.url).netloc, ""}


def test_a_newcomer_registers_confirms_and_signs_in(visit: Visit, mailbox: Mailbox) -> None:
    """A weak password is refused with advice; the link from the mail confirms the address."""
    email = f"{uuid4().hex}@example.com"
    visit.follow("Create an account")
    visit.fill(first_name="Ann", last_name="Smith", email=email, password="password123")
    visit.press("Create account")
    visit.shows("very common password")
    visit.fill(password=PASSWORD)
    visit.press("Create account")
    visit.shows("Check your mail")
    code = mailbox.code(email, "Confirm your address")
    visit.page.goto(f"{visit.served.url}/#verify={code}")
    visit.shows("Confirm your address")
    assert code not in visit.page.url, "the screen and the history show no code"
    visit.press("Confirm")
    visit.shows("Your address is confirmed.")
    visit.fill(email=email, password="not the one")
    visit.press("Sign in")
    visit.shows("Wrong address or password.")
    visit.sign_in(email)
    visit.shows("Hello, Ann")
    playwright.expect(visit.page.locator("#email-state")).to_contain_text("confirmed")


def test_a_forgotten_password_is_reset(visit: Visit, mailbox: Mailbox) -> None:
    """By the code from the mail, typed in; then the new one signs in."""
    email = register(visit.served)
    visit.follow("Forgot your password?")
    visit.fill(email=email)
    visit.press("Send the code")
    visit.shows("a code is on its way")
    visit.fill(code="not-a-code", new_password=NEW_PASSWORD)
    visit.press("Set the password")
    visit.shows("This code is not valid")
    visit.fill(code=mailbox.code(email, "Reset your password"))
    visit.press("Set the password")
    visit.shows("Your password is set.")
    visit.sign_in(email, NEW_PASSWORD)


def test_one_sees_and_ends_sign_ins(visit: Visit) -> None:
    """Another sign-in is listed and ended from here; the log has both; signing out ends this one."""
    email = register(visit.served)
    phone = sign_in(visit.served, email)
    visit.sign_in(email)
    rows = visit.page.locator("#sessions li")
    playwright.expect(rows).to_have_count(2)
    visit.page.get_by_role("button", name=re.compile("End the sign-in")).click()
    visit.shows("That sign-in has ended.")
    playwright.expect(rows).to_have_count(1)
    assert phone.profile().status_code == 401
    playwright.expect(visit.page.locator("#log")).to_contain_text("Sign-in ended")
    visit.press("Sign out")
    visit.shows("You are signed out.")
    visit.page.reload()
    playwright.expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_profile_is_changed(visit: Visit) -> None:
    """What is saved is greeted with, is in the form, and is there after a reload."""
    visit.sign_in(register(visit.served, first_name="Ann", last_name="S"))
    visit.fill(first_name="Zoë", phone="+49 30 1234")
    visit.press("Save")
    visit.shows("Your profile is saved.")
    visit.shows("Hello, Zoë")
    visit.page.reload()
    for name, value in {"First name": "Zoë", "Last name": "S", "Phone": "+49 30 1234"}.items():
        playwright.expect(visit.page.locator("#profile").get_by_label(name)).to_have_value(value)


def test_tabs_share_one_sign_in(visit: Visit) -> None:
    """A second tab and reloads of both use each refresh token once, so no one is signed out as a thief."""
    visit.sign_in(register(visit.served))
    other = visit.open_tab()
    for _ in range(2):
        for page in (visit.page, other):
            page.reload()
            visit.shows("Where you are signed in", page)
    visit.press("Sign out", other)
    visit.shows("You are signed out.", other)
    visit.page.reload()
    playwright.expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_the_password_changes_and_the_account_is_deleted(visit: Visit, mailbox: Mailbox) -> None:
    """Errors are shown at their form, and neither of them signs out."""
    email = register(visit.served)
    visit.sign_in(email)
    visit.fill(current_password="not the one", new_password=NEW_PASSWORD)
    visit.press("Change password")
    visit.shows("This is not your password.")
    visit.fill(current_password=PASSWORD, new_password=NEW_PASSWORD)
    visit.press("Change password")
    visit.shows("Your password is changed, and 0 other sign-ins ended.")
    with visit.page.expect_download() as download:
        visit.press("Download everything")
    assert Path(download.value.path()).read_bytes()[:2] == b"PK"
    visit.page.get_by_text("Delete this account").click()
    form = visit.page.locator("form[data-action=deleteAccount]")
    form.locator("input").fill(NEW_PASSWORD)
    form.get_by_role("button").click()
    visit.shows("Your account is deleted.")
    assert mailbox.receive(email, "Your account was deleted")


def test_it_works_by_keyboard_and_says_what_happens(visit: Visit) -> None:
    """Every field has a label and a visible focus, errors are announced, and focus follows the view."""
    email = register(visit.served)
    page = visit.page
    playwright.expect(page.get_by_role("heading", name="Sign in")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type(email)
    page.keyboard.press("Tab")
    page.keyboard.type("not the one")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("alert").filter(has_text="Wrong address")).to_be_visible()
    playwright.expect(page.get_by_role("textbox", name="Password")).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Control+A")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("heading", name="Hello")).to_be_focused()
    unlabelled = "[...document.querySelectorAll('input')].filter(each => !each.labels.length).length"
    assert page.evaluate(unlabelled) == 0


def test_it_fits_every_screen(visit: Visit) -> None:
    """In light, dark and on a phone nothing is wider than the screen, and text has enough contrast."""
    visit.shows("Create an account")
    _inspect(visit, "sign-in")
    visit.follow("Create an account")
    _inspect(visit, "register")
    visit.page.goto(f"{visit.served.url}/#forgotten")
    _inspect(visit, "reset")
    email = f"ann.{uuid4().hex[:6]}@example.com"
    form = {"email": email, "password": PASSWORD}
    for path, agent, more in (
        ("/auth/register", _LAPTOP, _PROFILE),
        ("/auth/login", _PHONE, {}),
        ("/auth/login", _LAPTOP, {}),
    ):
        headers = {"user-agent": agent}
        visit.served.client.post(path, json={**form, **more}, headers=headers).raise_for_status()
    visit.page.goto(f"{visit.served.url}/#sign-in")
    visit.sign_in(email)
    _inspect(visit, "account")


_PHONE = "Mozilla/5.0 (Android 14; Mobile; rv:128.0) Gecko/128.0 Firefox/128.0"
_LAPTOP = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
_PROFILE = {
    "first_name": "Ann",
    "last_name": "Smith",
    "phone": "+49 30 1234567",
    "address": "1 High Street, Berlin",
}
_CONTRAST = """() => {
  const channel = c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const behind = node => { for (; node; node = node.parentElement) {
    const color = rgb(getComputedStyle(node).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color; } return [255, 255, 255]; };
  const seen = [...document.querySelectorAll("h1, h2, p, label, a, button, small, strong, .tag, summary")]
    .filter(node => node.offsetParent && node.textContent.trim() && !node.disabled);
  return seen.map(node => {
    const [one, two] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    return [(Math.max(one, two) + .05) / (Math.min(one, two) + .05), node.textContent.trim().slice(0, 40)]; })
    .filter(([ratio]) => ratio < 4.5);
}"""


def _inspect(visit: Visit, name: str) -> None:
    page = visit.page
    for look, size in LOOKS:
        page.emulate_media(color_scheme="dark" if look == "dark" else "light", reduced_motion="reduce")
        page.set_viewport_size(size)
        wait_until(page, f"innerWidth === {size['width']}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, look)
        assert page.evaluate(_CONTRAST) == [], (name, look)
        if SCREENSHOTS is not None:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(SCREENSHOTS) / f"{name}-{look}.png", full_page=name == "account")
    page.set_viewport_size(LOOKS[0][1])
