"""The page of slides without a model: a dropped document becomes a deck of the length that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import running_browser
from tests.services.services import Served
from tests.services.slides_pages import inspect, playwright, sign_in, visiting

pytestmark = pytest.mark.usefixtures("slides_worker")

ROOT = Path(__file__).parents[2]
_DROP = """([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name, { type: "text/plain" }));
    for (const kind of ["dragover", "drop"]) document.getElementById("drop").dispatchEvent(
        new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
_COUNTS = """() => {
    window.counts = [];
    const shown = document.getElementById("count");
    new MutationObserver(() => shown.textContent && counts.push(shown.textContent.match(/\\d+/g).map(Number)))
        .observe(shown, { childList: true, characterData: true, subtree: true });
}"""


@pytest.fixture(scope="module")
def slides_places(slides_places: dict[str, str]) -> dict[str, str]:
    """The environment of services that have no model."""
    return {name: value for name, value in slides_places.items() if name != "EPHEMERA_SLIDES_MODEL_URL"}


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


def _drop(page: Any, path: Path) -> None:
    playwright.expect(page.locator("#drop")).to_be_visible()
    page.evaluate(_DROP, [path.name, path.read_text()])
    line = page.locator("#documents li").filter(has_text=path.name)
    playwright.expect(line).to_contain_text("ready")
    playwright.expect(line.get_by_role("checkbox")).to_be_checked()


def _generate(page: Any, topic: str, slides: int) -> None:
    page.get_by_label("Topic").fill(topic)
    page.get_by_label("Number of slides").fill(str(slides))
    page.get_by_role("button", name="Generate").click()


def test_the_count_is_that_of_the_outline(page: Any, slides: Served, tmp_path: Path) -> None:
    """A document with more tables than slides were asked for never has more slides than the page says."""
    path = tmp_path / "parks.md"
    park = "## Park {at}\n\nIt has {at} turbines.\n\n| Station | Maker |\n|--|--|\n| W{at} | Delta |\n\n"
    path.write_text("".join(park.format(at=at) for at in range(1, 6)))
    sign_in(page)
    _drop(page, path)
    page.evaluate(_COUNTS)
    _generate(page, "Parks", 5)
    playwright.expect(page.locator("#state")).to_have_text("Done.")
    counts, total = page.evaluate("counts"), page.locator("#thumbs .written").count()
    assert total > 5
    assert counts
    assert all(written <= of for written, of in counts), counts
    assert {of for written, of in counts if written} == {total}
    path = page.evaluate("`presentations/${deck.id}`")
    assert page.evaluate("path => ask('GET', path)", path)["slides_total"] == total


def test_a_dropped_document_becomes_a_deck(page: Any, slides: Served) -> None:
    """Its sections, charts and tables are slides, and the sources its headings."""
    expect = playwright.expect
    sign_in(page)
    _drop(page, ROOT / "tools" / "slide_samples" / "wind.md")
    page.get_by_text("Meadow").first.click()
    _generate(page, "Offshore wind in the North Sea", 10)
    expect(page.locator("#state")).to_have_text("Done.")
    expect(page.locator("#thumbs .chart")).to_have_count(2)
    expect(page.locator("#thumbs table")).to_have_count(1)
    expect(page.locator("#thumbs td.figure")).to_have_text(["2029", "2030", "2031"])
    page.locator("#thumbs button").nth(3).click()
    expect(page.locator("#stage h2")).to_have_text("Where we stand: GW")
    inspect(page, "deck")
    page.get_by_role("button", name="Edit slide").click()
    page.locator("#thumbs button").nth(2).click()
    expect(page.get_by_role("form", name="Edit slide").get_by_role("textbox", name="Title")).to_have_value(
        "Where we stand"
    )
    inspect(page, "editor")
    page.locator("#thumbs button").last.click()
    expect(page.locator("#stage li")).to_contain_text("wind.md: Where we stand, What it costs")
    page.get_by_role("link", name="Library").click()
    expect(page.locator("#presentations")).to_contain_text("Offshore wind in the North Sea")
    inspect(page, "library")


def test_slides_have_the_font_of_exports(page: Any) -> None:
    """The page loads the font that PDF files embed, from the service itself."""
    page.evaluate("document.fonts.load('700 16px Carlito')")
    loaded = page.evaluate(
        "[...document.fonts].filter(each => each.status === 'loaded').map(each => each.family)"
    )
    assert "Carlito" in loaded
    drawn = page.locator("#samples .slide-body").first.evaluate("each => getComputedStyle(each).fontFamily")
    assert drawn.startswith("Carlito")
