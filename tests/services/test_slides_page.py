"""The page of slides in a real browser: sign in, upload, watch, reload in the middle, download."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pptx import Presentation

from ephemera_services.runtime import DEMO_PASSWORD
from ephemera_services.slides import DEMO_DOCUMENT
from tests.browsers import running_browser
from tests.services.services import Served
from tests.services.slides_processes import Model
from tests.services.slides_users import EDITOR

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.usefixtures("slides_worker")


@pytest.fixture
def page() -> Iterator[Any]:
    """A page in a browser of this machine, which must have no error at its end."""
    errors: list[str] = []
    with running_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert errors == []


def test_a_presentation_from_sign_in_to_download(
    page: Any, slides: Served, slides_model: Model, tmp_path: Path
) -> None:
    """The bar moves while slides are written, is right again after a reload, and the PPTX opens."""
    expect = playwright.expect
    page.goto(slides.url + "/")
    page.get_by_label("Organization").fill("Company")
    page.get_by_label("E-mail").fill(EDITOR)
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Wrong organization, address or password")
    page.get_by_label("Password").fill(DEMO_PASSWORD)
    page.get_by_role("button", name="Sign in").click()

    file = tmp_path / "whales.txt"
    file.write_text(DEMO_DOCUMENT)
    page.get_by_label("PDF, DOCX, PPTX or text").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#documents")).to_contain_text("whales.txt: ready", timeout=30_000)

    page.get_by_label("Topic").fill("Whales in a browser")
    page.get_by_label("Slides").fill("4")
    slides_model.hold_at = 3
    slides_model.open.clear()
    page.get_by_role("button", name="Write it").click()
    expect(page.locator("#written li")).to_have_count(2, timeout=30_000)
    assert page.locator("#bar").evaluate("bar => bar.value") == 49

    page.reload()
    expect(page.locator("#written li")).to_have_count(2, timeout=30_000)
    assert page.locator("#bar").evaluate("bar => bar.value") == 49
    slides_model.open.set()
    expect(page.locator("#state")).to_have_text("Done.", timeout=30_000)
    expect(page.locator("#written li")).to_have_count(4)
    assert page.locator("#bar").evaluate("bar => bar.value") == 100
    expect(page.locator("#notes")).to_contain_text("presentation: 4 slides were written.")

    page.get_by_role("button", name="PPTX", exact=True).click()
    link = page.get_by_role("link", name="Download the PPTX")
    expect(link).to_be_visible(timeout=30_000)
    with page.expect_download() as downloading:
        link.click()
    saved = tmp_path / "deck.pptx"
    downloading.value.save_as(saved)
    deck = Presentation(str(saved))
    assert deck.slides[0].shapes.title.text == "Whales in a browser, part 1"
    assert len(deck.slides) == 4

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("E-mail")).to_be_visible()
