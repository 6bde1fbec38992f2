"""Draws the sample decks of docs/services/slides-decks.md: `python -m tools.slide_samples`.

A document goes the way that an upload goes without a model: its text is extracted, a deck is planned and
rendered as a PDF, and its pages are drawn on one picture for each theme.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pypdfium2
from PIL import Image, ImageDraw

from ephemera_services.slides.deck_plan import plan_deck
from ephemera_services.slides.document_text import extract
from ephemera_services.slides.library import sections_of
from ephemera_services.slides.pdf_export import render_pdf
from ephemera_services.slides.themes import THEMES, BrandKit, Theme, branded

_FOLDER = Path(__file__).parents[1] / "docs" / "images" / "slides"
_DOCUMENTS = Path(__file__).with_name("slide_samples")
_COLUMNS, _WIDTH, _GAP = 3, 400, 10  # pixels
_COLOURS = 128  # of a picture


def main() -> None:
    """Write all pictures."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for name, theme in THEMES.items():
        _draw("wind.md", "Offshore wind in the North Sea", "en", theme, name)
    kit = BrandKit(primary="5B2A86", accent="FFCC00", heading_font="Georgia", logo=_logo())
    _draw("wind.md", "Offshore wind in the North Sea", "en", branded(THEMES["paper"], kit), "brand")
    _draw("baikal.md", "Озеро Байкал", "ru", THEMES["meadow"], "russian")


def _draw(document: str, topic: str, language: str, theme: Theme, name: str) -> None:
    chunks = extract(BytesIO((_DOCUMENTS / document).read_bytes()))
    deck = plan_deck(topic, 12, language, sections_of(document, chunks))
    pages = list(pypdfium2.PdfDocument(render_pdf(topic, deck, theme)))
    height = _WIDTH * 9 // 16
    rows = -(-len(pages) // _COLUMNS)
    size = (_COLUMNS * (_WIDTH + _GAP) + _GAP, rows * (height + _GAP) + _GAP)
    sheet = Image.new("RGB", size, "#9AA3AE")
    for at, page in enumerate(pages):
        drawn = (
            page.render(scale=2 * _WIDTH / 960).to_pil().resize((_WIDTH, height), Image.Resampling.LANCZOS)
        )
        sheet.paste(drawn, (_GAP + at % _COLUMNS * (_WIDTH + _GAP), _GAP + at // _COLUMNS * (height + _GAP)))
    sheet.quantize(_COLOURS).save(_FOLDER / f"{name}.png", optimize=True)


def _logo() -> bytes:
    picture, file = Image.new("RGBA", (300, 120), (0, 0, 0, 0)), BytesIO()
    draw = ImageDraw.Draw(picture)
    draw.ellipse((0, 0, 119, 119), fill="#FFCC00")
    draw.rounded_rectangle((140, 40, 299, 80), 20, fill="#FFCC00")
    picture.save(file, "PNG")
    return file.getvalue()


if __name__ == "__main__":
    main()
