"""MIS3: the tables of a DOCX were dropped."""

from __future__ import annotations

from io import BytesIO

from docx import Document

from ephemera_services.slides.deck_plan import plan_deck
from ephemera_services.slides.document_text import extract
from ephemera_services.slides.library import sections_of

ROWS = [["Country", "GW"], ["United Kingdom", "14.7"], ["Germany", "8.5"]]


def test_mis3_a_table_is_read_and_shown_as_one() -> None:
    """Its cells are found, can be searched, and become a slide of their own below its heading."""
    document, file = Document(), BytesIO()
    document.add_heading("Capacity", 1)
    document.add_paragraph("Two countries have most of it.")
    table = document.add_table(len(ROWS), 2)
    for at, row in enumerate(ROWS):
        for column, cell in enumerate(row):
            table.cell(at, column).text = cell
    table.cell(1, 1).add_paragraph("(2024)")
    document.save(file)
    file.seek(0)
    text, found = extract(file)
    assert text["text"] == "Two countries have most of it."
    assert found["rows"] == [ROWS[0], ["United Kingdom", "14.7 (2024)"], ROWS[2]]
    assert "United Kingdom | 14.7" in found["text"]
    deck = plan_deck("Wind", 6, "en", sections_of("wind.docx", [text, found]))
    (slide,) = [slide for slide in deck if slide.table is not None]
    assert (slide.title, slide.layout) == ("Capacity: Country, GW", "table")  # its text has "Capacity"
