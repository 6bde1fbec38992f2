"""MIS1: PDF exports in Russian, Polish, Czech, Turkish and Greek were black boxes."""

from __future__ import annotations

from io import BytesIO

import pypdfium2
import pytest
from PIL import ImageChops
from pypdf import PdfReader

from ephemera_services.slides.deck import SlideContent
from ephemera_services.slides.pdf_export import render_pdf
from ephemera_services.slides.themes import THEMES

TEXTS = {
    "Russian": "Съешь ещё этих мягких французских булок",
    "Polish": "Zażółć gęślą jaźń",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Turkish": "Pijamalı hasta yağız şoföre İstanbul",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
}


def _pdf(text: str) -> bytes:
    return render_pdf(text, [SlideContent(title=text, bullets=[text])], THEMES["paper"])


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_mis1_the_text_can_be_extracted(text: str) -> None:
    """A reader gets exactly what was written, and the file has its font."""
    reader = PdfReader(BytesIO(_pdf(text)))
    (page,) = reader.pages
    assert page.extract_text().count(text) == 2
    fonts = [font.get_object() for font in page["/Resources"]["/Font"].values()]  # type: ignore[index]
    embedded = [font for font in fonts if "Carlito" in font["/BaseFont"]]
    assert embedded
    assert all("/FontFile2" in font["/FontDescriptor"] for font in embedded)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_mis1_every_letter_is_drawn_as_itself(text: str) -> None:
    """No two different letters look the same, as boxes do, and none is empty."""
    letters = sorted(set(text.replace(" ", "")))
    pictures = []
    for letter in letters:
        page = pypdfium2.PdfDocument(_pdf(letter))[0].render(scale=1).to_pil().convert("L")
        pictures.append(page.crop((60, 60, 140, 118)))
    for at, picture in enumerate(pictures):
        assert picture.getextrema()[0] < 128, letters[at]
        for other in pictures[:at]:
            assert ImageChops.difference(picture, other).getbbox() is not None, letters[at]
