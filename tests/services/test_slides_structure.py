"""What is read of a document: headings, paragraphs, list items and tables, each as what it is."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from typing import Any

import pytest
from docx import Document
from docx.enum.style import WD_STYLE_TYPE
from pptx import Presentation
from pptx.util import Inches
from reportlab.pdfgen.canvas import Canvas

from ephemera_services.slides.document_text import Chunk, UnreadableDocument, extract
from ephemera_services.slides.text_structure import sentences, text_blocks

ROWS = [["Country", "GW"], ["UK", "14.7"], ["Germany", "8.5"]]


def _saved(document: Any) -> list[Chunk]:
    file = BytesIO()
    document.save(file)
    file.seek(0)
    return extract(file)


def _text(content: str) -> list[Chunk]:
    return extract(BytesIO(content.encode()))


def _outline(chunks: list[Chunk]) -> list[tuple[int, str, str]]:
    return [(chunk["level"], chunk["heading"], chunk["text"]) for chunk in chunks]


def test_markdown() -> None:
    """Headings of both kinds with their levels, items apart from each other, broken words whole again."""
    found = _text("# One\n\nA line of connec-\ntions. Two.\n- an item\n- [x] another\n\nTwo\n---\n\nText.\n")
    assert _outline(found) == [
        (1, "One", "A line of connections. Two.\n\nan item\n\nanother"),
        (2, "Two", "Text."),
    ]
    assert [chunk["section"] for chunk in found] == [1, 2]


def test_what_is_no_prose_of_markdown_is_left_out() -> None:
    """Neither code, whose comments are no headings, nor front matter, comments, images, links and marks."""
    found = _text(
        "---\ntitle: Kept by tools\ntags:\n  - a\n---\n\n# One\n\n<!-- a remark\n\n# no -->\n"
        "> **Note:** see [the report](https://a.example/b), `x_y` and _all_ of *it*.<br>More at > 5 %.\n\n"
        "```python\n# Two\n\nprint('```')\n```\n\n***\n\n![A picture](a.png)\n\n> 5 % is much.\n"
        "\n| [A](a) | B |\n|--|--|\n| `c` | d |\n"
    )
    assert _outline(found) == [
        (1, "One", "Note: see the report, x_y and all of it. More at > 5 %.\n\n> 5 % is much."),
        (1, "One", "A | B\nc | d"),
    ]
    assert found[1]["rows"] == [["A", "B"], ["c", "d"]]
    (plain,) = _text("if 2 * 3 * 4 < a_b_c and x > 5\n\n~~~~~~~~\n\nis odd.")
    assert plain["text"] == "if 2 * 3 * 4 < a_b_c and x > 5\n\n~~~~~~~~\n\nis odd.", "no end, no code"


def test_a_line_of_its_own_is_a_heading() -> None:
    """Short lines above a paragraph, also numbered ones; but no sentence, and nothing at the end."""
    found = _text("1. Costs\n\nThey fell.\n\n2.1 Steel\n\nIt is dear now.\n\nIt rose.\n\nThe end\n")
    assert _outline(found) == [
        (1, "1. Costs", "They fell."),
        (2, "2.1 Steel", "It is dear now.\n\nIt rose.\n\nThe end"),
    ]


@pytest.mark.parametrize(
    "text",
    ["| Country | GW |\n|:--|--:|\n| UK | 14.7 |\n| Germany | 8.5 |", "Country\tGW\nUK\t14.7\nGermany\t8.5"],
)
def test_tables_of_text(text: str) -> None:
    """Markdown's tables, and lines with tabs, are tables."""
    (chunk,) = _text(text)
    assert chunk["rows"] == ROWS


def test_docx_headings_are_found_by_the_names_of_their_styles() -> None:
    """Ids of styles depend on the editor's language; a heading without text below it is kept."""
    document = Document()
    document.styles["Heading 1"].element.set(
        "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}styleId", "berschrift1"
    )
    document.add_heading("The title", 0)
    document.add_heading("Costs", 1)
    document.add_paragraph("They fell by 12 %.")
    assert _outline(_saved(document)) == [
        (0, "The title", "The title"),
        (1, "Costs", "They fell by 12 %."),
    ]


@pytest.mark.parametrize(
    "contents",
    [
        "# Contents\n\n- [Costs](#costs)\n- [Grid](#grid)\n\n",
        "Inhaltsverzeichnis:\n\nCosts ........ 3\nGrid . . . . . . 12\n\n",
        "# Table of contents\n\nCosts\t3\nGrid\t12\n\n",
        "Costs of all kinds ............ iv\n\n",
    ],
)
def test_tables_of_contents_are_not_read(contents: str) -> None:
    """By their heading, or by the dots before the numbers of pages; a section that says something is."""
    found = _text(f"{contents}# Costs\n\nThey fell to 3 ... 4 %.\n\n# Contents\n\nThe box had 4 books.\n")
    assert _outline(found) == [
        (1, "Costs", "They fell to 3 ... 4 %."),
        (1, "Contents", "The box had 4 books."),
    ]


def test_tables_of_contents_of_docx_are_known_by_their_styles() -> None:
    """Word writes them as paragraphs of styles of their own."""
    document = Document()
    for name, text in (("TOC Heading", "Overview"), ("toc 1", "Costs\t3"), ("toc 2", "Steel\t4")):
        if name not in document.styles:
            document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
        document.add_paragraph(text, style=name)
    document.add_heading("Costs", 1)
    document.add_paragraph("They fell.")
    assert _outline(_saved(document)) == [(1, "Costs", "They fell.")]


def test_pptx_titles_are_headings() -> None:
    """Each slide is a section, with its tables, and without its number."""
    deck = Presentation()
    for title in ("Costs", "Capacity"):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"About {title}."
    table = slide.shapes.add_table(3, 2, *[Inches(1)] * 4).table
    for at, row in enumerate(ROWS):
        for column, cell in enumerate(row):
            table.cell(at, column).text = cell
    found = _saved(deck)
    assert _outline(found)[:2] == [(1, "Costs", "About Costs."), (1, "Capacity", "About Capacity.")]
    assert found[2]["rows"] == ROWS


def test_pdf_headings_are_found_by_their_font() -> None:
    """Larger lines and bold ones are headings; the number of a page is not text."""
    file = BytesIO()
    page = Canvas(file)
    for y, font, size, line in (
        (800, "Helvetica-Bold", 20, "Costs"),
        (770, "Helvetica", 11, "They fell by 12 %"),
        (756, "Helvetica", 11, "since 2019. It goes on."),
        (730, "Helvetica-Bold", 11, "Steel"),
        (710, "Helvetica", 11, "It is dearer than before."),
        (20, "Helvetica", 11, "17"),
    ):
        page.setFont(font, size)
        page.drawString(40, y, line)
    page.save()
    file.seek(0)
    assert _outline(extract(file)) == [
        (1, "Costs", "They fell by 12 % since 2019. It goes on."),
        (2, "Steel", "It is dearer than before."),
    ]


def test_pdf_tables_are_found_and_running_lines_are_not_read() -> None:
    """Cells are told apart by their gaps; headers and footers end no section, pages no sentence."""
    file = BytesIO()
    canvas = Canvas(file)
    table = [[(40, row[0]), (150, row[1])] for row in ROWS]
    columns = [[(40, "Two columns"), (200, "of words")], [(40, "a"), (200, "b")], [(40, "c"), (200, "d")]]
    pages = (
        [*table, [(40, "Costs fell for the third year. The next report")]],
        [[(40, "says more. All is well.")], *columns],
    )
    for number, lines in enumerate(pages, 1):
        canvas.setFont("Helvetica-Bold", 14)
        canvas.drawString(40, 820, "The harbour")
        canvas.setFont("Helvetica", 11)
        for at, line in enumerate(lines):
            for x, text in line:
                canvas.drawString(x, 700 - 20 * at, text)
        canvas.drawString(300, 20, f"Page {number} of 2")
        canvas.showPage()
    canvas.save()
    file.seek(0)
    found = extract(file)
    assert [chunk["rows"] for chunk in found] == [ROWS, None]
    assert found[1]["text"].startswith("Costs fell for the third year. The next report says more.")
    assert found[1]["text"].endswith("Two columns of words a b c d")
    assert not any("harbour" in chunk["text"] or "Page" in chunk["text"] for chunk in found)


def test_pdf_headers_of_chapters_are_not_read() -> None:
    """They are on few pages, but count them; a heading that does is larger."""
    file = BytesIO()
    canvas = Canvas(file)
    chapters = ("Grid", "Grid", "Costs", "Costs", "Ports", "Ports")
    headings = ("Week 1", "Week 2", "Steel", "Interest", "Cranes", "Ships")
    for number, (chapter, heading) in enumerate(zip(chapters, headings, strict=True), 7):
        canvas.setFont("Helvetica", 11)
        canvas.drawString(40, 800, f"Chapter {chapter} {number}")
        canvas.setFont("Helvetica-Bold", 16)
        canvas.drawString(40, 760, heading)
        canvas.setFont("Helvetica", 11)
        canvas.drawString(40, 720, f"This is all about {heading}.")
        canvas.showPage()
    canvas.save()
    file.seek(0)
    assert _outline(extract(file)) == [(1, heading, f"This is all about {heading}.") for heading in headings]


def test_pdf_tables_have_their_header_and_lists_are_no_tables() -> None:
    """Names may be as wide as their columns; an item's mark may be larger than its text, and is no cell."""
    file = BytesIO()
    canvas = Canvas(file)
    header = [(40, "Districts of Brno"), (140, "Night excess (°C)"), (240, "Stations")]
    rows = [[(40, "Centre"), (140, "3.9"), (240, "9")], [(40, "North"), (140, "2.1"), (240, "11")]]
    for at, line in enumerate([[(40, "It was hot."), (94, "So we measured.")], header, *rows, rows[0]]):
        for x, text in line:
            canvas.setFont("Helvetica", 11)
            canvas.drawString(x, 700 - 20 * at, text)
    for at, text in enumerate(("Plant 1,200 trees.", "Measure in 2028.", "Spend 3 million.")):
        canvas.setFont("Helvetica", 14)
        canvas.drawString(40, 500 - 20 * at, "•")
        canvas.setFont("Helvetica", 11)
        canvas.drawString(60, 500 - 20 * at, text)
    canvas.save()
    file.seek(0)
    found = extract(file)
    assert [chunk["text"] for chunk in found if chunk["rows"] is None] == [
        "It was hot. So we measured.",
        "Plant 1,200 trees.\n\nMeasure in 2028.\n\nSpend 3 million.",
    ]
    assert found[1]["rows"] == [[text for _, text in line] for line in (header, *rows, rows[0])]


def test_sentences_do_not_end_at_abbreviations() -> None:
    """Nor at initials, nor before a small letter."""
    assert sentences("See Dr. Meyer, e.g. on p. 3. It is J. Smith's. Да, т. е. так. Новое.") == [
        "See Dr. Meyer, e.g. on p. 3.",
        "It is J. Smith's.",
        "Да, т. е. так.",
        "Новое.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "Die Stadtwerke haben 2025 einen Umsatz von 212,4 Mio. Euro erzielt.",
        "Obwohl die Entgelte zum 1. Januar 2025 um 6 % sanken, blieb das Ergebnis stabil.",
        "Der Park ging zwischen 3. Juni und 5. Juli ans Netz.",
        "Im 3. Quartal wuchs er.",
        "The U.S. Army met Acme Inc. in May.",
        "It opened at 9 a.m. on Jan. 5.",
    ],
)
def test_sentences_do_not_end_within_dates_and_amounts(sentence: str) -> None:
    """Of a day and its month, an amount and its unit, or a name and its parts."""
    assert sentences(f"Davor. {sentence} So it was.") == ["Davor.", sentence, "So it was."]


def test_a_date_at_the_beginning_of_a_line_is_no_item() -> None:
    """A paragraph that is wrapped before the day goes on; a numbered list has its items."""
    (block,) = text_blocks("Der Park ging am\n3. Juni 2025 ans Netz.")
    assert block.text == "Der Park ging am 3. Juni 2025 ans Netz."
    assert [block.text for block in text_blocks("1. Juno\n2. Mars")] == ["Juno", "Mars"]


def test_sentences_end_at_numbers_and_abbreviations_too() -> None:
    """Before a capital letter, where no month and no article says otherwise."""
    text = "The wait rose to 47. Patients complained. It closed at 9 p.m. The rest of them left."
    assert len(sentences(text)) == 4


@pytest.mark.parametrize(
    "text",
    [
        part * (500_000 // len(part))
        for part in ("**a ", "- ", "#", "a. ", "|", "[](", "![a", "` ", "*a_", "<!--", "<a ", "> ", "```a\n")
    ],
)
def test_hostile_text_is_read_in_time(text: str) -> None:
    """What could make a parser repeat itself is read, or found empty, within the reader's own limits."""
    with suppress(UnreadableDocument):
        extract(BytesIO(text.encode()))
