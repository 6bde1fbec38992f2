"""The page of slides in a real browser: from the sign-in to a deck that is edited, exported and shared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pptx import Presentation

from ephemera_services import slides as package
from ephemera_services.runtime import DEMO_PASSWORD
from ephemera_services.slides import DEMO_DOCUMENT
from ephemera_services.slides.deck import Column, SlideContent
from ephemera_services.slides.share_page import share_page
from ephemera_services.slides.themes import THEMES
from tests.browsers import running_browser
from tests.services.services import Served
from tests.services.slides_pages import DESK, inspect, open_deck, playwright, presentation, sign_in, visiting
from tests.services.slides_processes import Model
from tests.services.slides_users import ADMIN, VIEWER, Person

pytestmark = pytest.mark.usefixtures("slides_worker")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this machine."""
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Any, slides: Served) -> Iterator[Any]:
    """The page, opened."""
    with visiting(browser, slides.url) as opened:
        yield opened


def test_a_presentation_from_sign_in_to_download(
    page: Any, slides: Served, slides_model: Model, tmp_path: Path
) -> None:
    """The bar moves while slides are written, is right again after a reload, and the PPTX opens."""
    expect = playwright.expect
    sign_in(page, password="not the password")
    expect(page.get_by_role("alert").filter(has_text="Wrong")).to_contain_text(
        "Wrong organization, address or password"
    )
    inspect(page, "sign-in")
    sign_in(page)
    expect(page.locator("#generate")).to_be_visible()

    file = tmp_path / "whales.txt"
    file.write_text(DEMO_DOCUMENT)
    page.get_by_label("Add documents").set_input_files(file)
    line = page.locator("#documents li").filter(has_text="whales.txt")
    expect(line).to_contain_text("ready")
    expect(line.get_by_role("checkbox")).to_be_checked()

    page.get_by_label("Topic").fill("Whales in a browser")
    page.get_by_label("Number of slides").fill("4")
    slides_model.hold_at = 3
    slides_model.open.clear()
    page.get_by_role("button", name="Generate").click()
    written = page.locator("#thumbs .written")
    expect(written).to_have_count(2)
    assert page.locator("#bar").evaluate("bar => bar.value") == 49

    page.reload()
    expect(written).to_have_count(2)
    expect(page.locator("#state")).to_contain_text("Writing: Whales in a browser, part 3")
    assert page.locator("#bar").evaluate("bar => bar.value") == 49
    expect(page.locator("#thumbs .coming")).to_have_count(2)
    width = "name => document.querySelector(`#thumbs ${name} .slide`).clientWidth"
    assert page.evaluate(width, ".coming") == page.evaluate(width, ".written")
    inspect(page, "progress")
    slides_model.open.set()
    expect(page.locator("#state")).to_have_text("Done.")
    expect(written).to_have_count(4)
    assert page.locator("#bar").evaluate("bar => bar.value") == 100
    expect(page.locator("#toasts")).to_contain_text("Presentation: 4 slides were written.")

    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="PPTX").click()
    link = page.get_by_role("link", name="Download the PPTX")
    expect(link).to_be_visible()
    with page.expect_download() as downloading:
        link.click()
    saved = tmp_path / "deck.pptx"
    downloading.value.save_as(saved)
    deck = Presentation(str(saved))
    assert deck.slides[0].shapes.title.text == "Whales in a browser, part 1"
    assert len(deck.slides) == 4

    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("E-mail")).to_be_visible()


def test_slides_are_edited_reordered_rewritten_and_deleted(page: Any, slides: Served, anna: Person) -> None:
    """What is saved is there after a reload, also what was left without Save; the preview follows."""
    expect = playwright.expect
    made = presentation(anna, "Herons by keyboard", 3)
    sign_in(page)
    expect(page.locator("#presentations")).to_contain_text("Herons by keyboard")
    open_deck(page, slides, made)
    page.locator("#stage").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#position")).to_have_text("2 / 3")
    expect(page.locator("#notes")).to_have_text("Say 2.")

    page.get_by_role("button", name="Edit slide").click()
    form = page.get_by_role("form", name="Edit slide")
    expect(form.get_by_role("textbox", name="Title")).to_be_focused()
    form.get_by_role("textbox", name="Title").fill("Herons stand still")
    form.get_by_role("textbox", name="Bullets").fill("They wait\nThey strike")
    expect(page.locator("#stage li")).to_have_text(["They wait", "They strike"])
    form.get_by_role("button", name="Save").click()
    expect(page.locator("#saved")).to_have_text("Saved")
    form.get_by_role("textbox", name="Speaker notes").fill("Pause here.")
    inspect(page, "editing")
    page.get_by_role("button", name="Next slide").click()
    expect(page.locator("#position")).to_have_text("3 / 3")

    page.locator("#thumbs button").nth(1).focus()
    page.keyboard.press("Enter")
    page.locator("#thumbs [aria-current]").press("Alt+ArrowUp")
    titles = page.locator("#thumbs .slide h2")
    expect(titles.first).to_have_text("Herons stand still")
    expect(page.locator("#thumbs [aria-current]")).to_be_focused()
    form.get_by_role("button", name="Move down").click()
    expect(titles.nth(1)).to_have_text("Herons stand still")
    page.locator("#thumbs button").nth(2).drag_to(page.locator("#thumbs > li").nth(0))
    expect(titles.first).to_have_text("Herons by keyboard, part 3")

    with page.expect_response(re.compile("/regenerate$")):
        form.get_by_role("button", name="Regenerate").click()
    expect(page.locator("#toasts")).to_contain_text("Presentation: The slide was written again.")
    expect(page.locator("#thumbs .rewriting")).to_have_count(0)
    page.locator("#thumbs button").nth(1).click()
    form.get_by_role("button", name="Delete slide").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(titles).to_have_text(["Herons by keyboard, part 3", "Herons stand still"])
    page.reload()
    expect(titles).to_have_text(["Herons by keyboard, part 3", "Herons stand still"])
    page.get_by_role("button", name="Next slide").click()
    expect(page.locator("#notes")).to_have_text("Pause here.")


def test_a_link_is_shared_and_withdrawn(page: Any, browser: Any, slides: Served, anna: Person) -> None:
    """Who is signed out opens it, without notes; after it is withdrawn it opens nothing."""
    expect = playwright.expect
    made = presentation(anna, "Egrets to share", 3)
    sign_in(page)
    expect(page.locator("#presentations")).to_contain_text("Egrets to share")
    open_deck(page, slides, made)
    inspect(page, "viewer")
    page.get_by_role("button", name="Share", exact=True).click()
    dialog = page.get_by_role("dialog", name="Share")
    dialog.get_by_label("Expires").select_option("In a week")
    dialog.get_by_role("button", name="Create the link").click()
    expect(dialog.locator("#share-about")).to_contain_text("Open until")
    link = dialog.get_by_label("Public link").input_value()
    inspect(page, "share")
    with browser.new_context() as stranger:
        opened = stranger.new_page()
        opened.goto(link)
        expect(opened.get_by_role("heading", name="Egrets to share, part 2")).to_be_visible()
        assert "Say 2." not in opened.content()
    page.reload()
    page.get_by_role("button", name="Share", exact=True).click()
    expect(dialog.locator("#share-about")).to_contain_text("1 view")
    expect(dialog.get_by_label("Public link")).to_have_value(link)
    dialog.get_by_role("button", name="Withdraw").click()
    expect(dialog).to_contain_text("The link is withdrawn")
    assert httpx.get(link, headers={"accept": "text/html"}).status_code == 404


def test_a_shared_slide_is_as_high_as_its_text(browser: Any) -> None:
    """What has no room in 16:9 makes its slide higher; the text is not below its end."""
    bullets = ["The emergency department saw more patients than in any quarter before it"] * 5
    columns = [Column(heading=name, bullets=bullets) for name in ("Waiting times", "Staff")]
    dense = SlideContent(title="Waiting times · Staff", layout="two_columns", columns=columns)
    content, _ = share_page("Report", [dense], THEMES["paper"])
    with browser.new_context(viewport=DESK) as context:
        opened = context.new_page()
        opened.set_content(content)
        section = opened.locator("section")
        assert section.evaluate("each => each.scrollHeight <= each.clientHeight")
        assert section.evaluate("each => each.clientHeight > each.clientWidth * 9 / 16")


def test_the_library_is_searched_and_a_job_is_cancelled(
    page: Any, slides: Served, slides_model: Model, anna: Person
) -> None:
    """A search finds what slides say; a cancelled presentation says so, and keeps what was written."""
    expect = playwright.expect
    presentation(anna, "Bitterns in reeds", 2, theme="meadow")
    presentation(anna, "Storks on chimneys", 2, theme="night")
    sign_in(page)
    cards = page.locator("#presentations li")
    expect(cards.filter(has_text="Storks")).to_have_count(1)
    inspect(page, "search")
    page.get_by_label("Search the library").fill("bitterns")
    expect(cards).to_have_count(1)
    expect(cards).to_contain_text("Bitterns in reeds")
    page.get_by_label("Search the library").fill("<b>no such bird")
    expect(page.locator("#shelf-state")).to_contain_text("contains “<b>no such bird”")

    slides_model.hold_at = 2
    slides_model.open.clear()
    page.get_by_label("Topic").fill("Cranes that never land")
    page.get_by_label("Number of slides").fill("3")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#thumbs .written")).to_have_count(1)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#state")).to_have_text("It was cancelled.")
    slides_model.open.set()
    expect(page.locator("#thumbs .written")).to_have_count(1)
    expect(page.get_by_role("button", name="Export")).to_be_hidden()


def test_viewers_look_and_change_nothing(page: Any, slides: Served, anna: Person) -> None:
    """Who may only read sees the slides and notes, and no control that would be refused."""
    expect = playwright.expect
    made = presentation(anna, "Grebes for viewers", 2)
    sign_in(page, VIEWER)
    expect(page.locator("#presentations")).to_contain_text("Grebes for viewers")
    expect(page.locator("#generate")).to_be_hidden()
    page.get_by_role("link", name="Settings").click()
    expect(page.locator("#settings h2")).to_have_text(["Password"])
    open_deck(page, slides, made)
    expect(page.locator("#notes")).to_have_text("Say 1.")
    for name in ("Edit slide", "Share", "Export", "Delete", "Rename"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()


def test_settings_are_for_users_keys_and_the_brand(page: Any, slides: Served) -> None:
    """An administrator adds, changes and deletes a user, creates and revokes a key, and sets colours."""
    expect = playwright.expect
    sign_in(page, ADMIN)
    page.get_by_role("link", name="Settings").click()
    email = f"{uuid4().hex[:8]}@company.example"
    page.get_by_label("E-mail of the new user").fill(email)
    page.get_by_label("First password").fill(DEMO_PASSWORD)
    page.get_by_role("button", name="Add user").click()
    line = page.locator("#settings li").filter(has_text=email)
    line.get_by_label(f"Role of {email}").select_option("Viewer")
    expect(page.locator("#toasts")).to_contain_text("the new role applies")
    line.get_by_role("button", name="Block").click()
    expect(line).to_contain_text("blocked")
    inspect(page, "settings", whole=True)
    line.get_by_role("button", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(line).to_have_count(0)

    page.get_by_label("Name", exact=True).fill("A script")
    page.get_by_role("button", name="Create key").click()
    key = {"x-api-key": page.get_by_label("New key").input_value()}
    assert httpx.get(f"{slides.url}/usage", headers=key).status_code == 200
    page.get_by_role("button", name="Revoke A script").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Revoke").click()
    expect(page.locator("#settings")).to_contain_text("You have no keys.")
    assert httpx.get(f"{slides.url}/usage", headers=key).status_code == 401

    page.get_by_label("Accent").fill("#00aa55")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text("new look")
    page.reload()
    expect(page.get_by_label("Accent")).to_have_value("#00aa55")
    page.get_by_role("button", name="Remove the brand kit").click()
    expect(page.get_by_role("button", name="Remove the brand kit")).to_have_count(0)


def test_users_change_their_password_in_the_settings(page: Any, slides: Served) -> None:
    """The session goes on, and the quotas show the storage and the subscription."""
    expect = playwright.expect
    root, email = Person(slides, ADMIN), f"{uuid4().hex[:8]}@company.example"
    form = {"email": email, "password": DEMO_PASSWORD, "role": "editor"}
    root.want(201, "POST", "/admin/users", json=form)
    sign_in(page, email)
    expect(page.locator("#usage p")).to_have_text("Plan: enterprise, active")
    expect(page.locator("#usage")).to_contain_text("1,000,000 MB of documents")
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Current password").fill("not this one")
    page.get_by_label("New password").fill("another horse battery")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("alert").filter(has_text="not your")).to_be_visible()
    page.get_by_label("Current password").fill(DEMO_PASSWORD)
    page.get_by_role("button", name="Change password").click()
    expect(page.locator("#toasts")).to_contain_text("Your password is changed")
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, email, "another horse battery")
    expect(page.locator("#generate")).to_be_visible()


def test_every_field_has_a_label_and_themes_their_colours(page: Any) -> None:
    """Fields and buttons have accessible names; the slides of the page have the colours of exports."""
    unlabelled = """[...document.querySelectorAll("input, select, textarea")]
        .filter(each => !each.labels.length && !each.getAttribute("aria-label")).length"""
    assert page.evaluate(unlabelled) == 0
    style = Path(package.__path__[0], "page", "deck.css").read_text()
    names = {"background": "slide-background", "ink": "slide-ink", "accent": "accent-colour"}
    for theme in THEMES.values():
        block = style.partition(f'[data-theme="{theme.name}"]')[2].partition("}")[0]
        for field in ("background", "ink", "primary", "on_primary", "accent", "accent_text", "tint"):
            variable = names.get(field, field.replace("_", "-"))
            assert f"--{variable}: #{getattr(theme, field)};" in block, (theme.name, field)


def test_an_answer_that_is_older_than_an_event_removes_no_slide(page: Any) -> None:
    """A slide that an event brought while the presentation was being read stays, in its place."""
    titles = page.evaluate(
        """() => {
            session.me = { role: "editor", features: [] };
            const row = { topic: "T", theme: "paper", state: "running", slides: [] };
            Object.assign(row, { slides_completed: 0, slides_total: 3 });
            setPresentation(row);
            placeSlide({ slide_number: 1, slide_id: "a", slide_title: "One" });
            setPresentation({ ...row, slides: [{ ...deck.slides[0], number: 2, title: "Two" }] });
            return deck.slides.map((each) => each.title);
        }"""
    )
    assert titles == ["One", "Two"]


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (["1.234,5", "-617,25"], ["1\u00a0234,50", "-617,25"]),
        (["48.6", "12.15"], ["48.60", "12.15"]),
        (["1.500", "2.000"], None),
    ],
)
def test_the_page_has_the_charts_of_exports(
    page: Any, slides: Served, anna: Person, cells: list[str], texts: list[str] | None
) -> None:
    """Numbers are those that the server read, to scale from a zero line; what it cannot tell is a table."""
    expect = playwright.expect
    made = presentation(anna, "Balance of the heronry", 1)
    slide_id = anna.want(200, "GET", f"/presentations/{made}")["slides"][0]["slide_id"]
    table = {"header": ["Company", "Result"], "rows": [["Heron", cells[0]], ["Egret", cells[1]]]}
    change = {"layout": "chart", "table": table}
    edited = anna.want(200, "PATCH", f"/presentations/{made}/slides/{slide_id}", json=change)
    sign_in(page)
    expect(page.locator("#presentations")).to_contain_text("Balance")
    open_deck(page, slides, made)
    stage = page.locator("#stage")
    if texts is None:
        assert edited["chart"] is None
        expect(stage.locator("td").nth(1)).to_have_text("1.500")
        return
    expect(stage.locator(".chart b")).to_have_text(texts)
    place = "bar => { const box = bar.getBoundingClientRect(); return [box.top, box.bottom]; }"
    (above, middle), (below, bottom) = [bar.evaluate(place) for bar in stage.locator(".bars i").all()]
    if cells[1].startswith("-"):
        zero = stage.locator(".chart hr").bounding_box()["y"]
        assert middle == pytest.approx(zero, abs=2)
        assert below == pytest.approx(zero, abs=2)
        assert (bottom - below) * 2 == pytest.approx(middle - above, abs=2)
    else:
        assert middle == pytest.approx(bottom, abs=1)
        assert (bottom - below) * 4 == pytest.approx(middle - above, abs=3)
    inspect(page, "chart")
