"""Exported files: real layouts, themes and brand kits, and text of any script that fits its boxes."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import pypdfium2
import pytest
from PIL import Image
from pptx import Presentation
from pptx.enum.chart import XL_LABEL_POSITION
from pptx.enum.text import PP_ALIGN
from pypdf import PdfReader

from ephemera_services.slides.deck import MAX_TABLE_ROWS, Column, SlideContent, Table
from ephemera_services.slides.pdf_export import render_pdf
from ephemera_services.slides.pptx_export import render_pptx
from ephemera_services.slides.share_page import share_page
from ephemera_services.slides.slide_layout import HEIGHT, NAMES, SLOTS, WIDTH, place
from ephemera_services.slides.text_fit import LINE, Measure, measure_for, wrap
from ephemera_services.slides.themes import THEMES, BrandKit, Theme, branded, check_logo, contrast

PAPER = THEMES["paper"]
LINES = {
    "short": "Whales",
    "English": "The first of fourteen converter stations for two gigawatts each is due in March 2029.",
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю: «Ёлка» № 5 — 1 250 ₽.",
    "Polish": "Zażółć gęślą jaźń, a potem pójdź, kińże tę chmurność w głąb flaszy!",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy, řekl Řehoř v Jičíně.",
    "Turkish": "Pijamalı hasta yağız şoföre çabucak güvendi; İstanbul'da ılık bir gün.",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· ΐ, ΰ και Ώ.",
    "long word": "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz" * 3,
    "long": "many words that go on and on " * 60,
    "wide": "WWWW MMMM " * 12,
    "Japanese": "鯨は海に戻った哺乳類である。" * 4,
}
EMU = 12_700
SLOT_OF = {(NAMES[layout], slot.number): slot for layout, slots in SLOTS.items() for slot in slots}


def _deck(text: str) -> list[SlideContent]:
    """A slide of each layout, full of a text."""
    bullets, rows = [text] * 5, [["2023", "1"], ["2024", "2"]]
    sources = [text[:120]]
    return [
        SlideContent(layout="title", title=text, bullets=[text]),
        SlideContent(layout="agenda", title=text, bullets=[text] * 9),
        SlideContent(layout="section", title=text, bullets=[text], sources=sources),
        SlideContent(title=text, bullets=bullets, notes=text, sources=sources),
        SlideContent(
            layout="two_columns",
            title=text,
            columns=[Column(heading=text, bullets=[text] * 4), Column(heading=text, bullets=[text])],
        ),
        SlideContent(
            layout="table",
            title=text,
            table=Table(header=[text, "B", "C"], rows=[[text, "1", text]] * 12),
            sources=sources,
        ),
        SlideContent(layout="chart", title=text, table=Table(header=[text, text], rows=rows)),
        SlideContent(layout="closing", title=text, bullets=bullets, sources=sources),
    ]


def _logo() -> bytes:
    file = BytesIO()
    Image.new("RGBA", (300, 120), (255, 0, 255, 255)).save(file, "PNG")
    return file.getvalue()


BRANDED = branded(
    PAPER,
    BrandKit(primary="5B2A86", accent="FFCC00", heading_font="Georgia", body_font="Verdana", logo=_logo()),
)


def _height(frame: Any, width: float, measure: Measure) -> float:
    """The height of the text of a PPTX's frame, wrapped again from what the file says."""
    height = 0.0
    for number, paragraph in enumerate(frame.paragraphs):
        if not paragraph.runs:
            continue
        size = paragraph.runs[0].font.size.pt
        lines = wrap(paragraph.text, width, size, measure._replace(stretch=1.0))
        before = paragraph.space_before.pt if number and paragraph.space_before is not None else 0.0
        height += len(lines) * paragraph.line_spacing.pt + before
        assert paragraph.line_spacing.pt == pytest.approx(size * LINE, abs=0.1)
    return height


@pytest.mark.parametrize("theme", [PAPER, BRANDED], ids=["paper", "branded"])
@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_no_text_is_larger_than_its_box(text: str, theme: Theme) -> None:
    """Measured again from the file: every placeholder and every row holds its text, on the slide."""
    deck = Presentation(BytesIO(render_pptx(text, _deck(text), theme)))
    for slide in deck.slides:
        for shape in slide.placeholders:
            assert shape.left >= 0
            assert shape.left + shape.width <= WIDTH * EMU
            assert shape.top + shape.height <= HEIGHT * EMU
            if shape.has_text_frame and shape.placeholder_format.idx not in (11, 12):
                slot = SLOT_OF[slide.slide_layout.name, shape.placeholder_format.idx]
                room = shape.width / EMU - {"none": 0, "bullet": 24, "number": 32}[slot.marker]
                measure = measure_for("Calibri", bold=slot.bold)
                assert _height(shape.text_frame, room, measure) <= shape.height / EMU + 0.5, shape.name
            if shape.has_table:
                _check_table(shape)


def _check_table(shape: Any) -> None:
    table = shape.table
    assert len(table.rows) == MAX_TABLE_ROWS + 1
    assert sum(row.height for row in table.rows) <= 320 * EMU
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            width = (column.width - cell.margin_left - cell.margin_right) / EMU
            room = (row.height - cell.margin_top - cell.margin_bottom) / EMU
            assert _height(cell.text_frame, width, measure_for("Calibri")) <= room + 0.5


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_pdf_text_is_on_its_page(text: str) -> None:
    """No character of a PDF is drawn outside of the margins."""
    document = pypdfium2.PdfDocument(render_pdf(text, _deck(text), PAPER))
    for page in document:
        characters = page.get_textpage()
        for at in range(characters.count_chars()):
            if characters.get_text_range(at, 1).strip():
                left, bottom, right, top = characters.get_charbox(at)
                assert left >= 40
                assert right <= WIDTH - 55
                assert bottom >= 14
                assert top <= HEIGHT - 30


def test_a_pptx_has_a_master_with_layouts() -> None:
    """16:9, eight named layouts with placeholders that slides use, numbers, sources and notes."""
    deck = Presentation(BytesIO(render_pptx("Whales", _deck("Whales are large."), PAPER)))
    assert (deck.slide_width, deck.slide_height) == (WIDTH * EMU, HEIGHT * EMU)
    assert [layout.name for layout in deck.slide_layouts] == list(NAMES.values())
    assert [slide.slide_layout.name for slide in deck.slides] == list(NAMES.values())
    assert all(slide.shapes.title.text == "Whales are large." for slide in deck.slides)
    bullets = deck.slides[3]
    texts = {shape.placeholder_format.type: shape for shape in bullets.placeholders}
    assert [str(kind).partition(" ")[0] for kind in texts] == ["TITLE", "BODY", "FOOTER", "SLIDE_NUMBER"]
    footer = next(shape for kind, shape in texts.items() if str(kind).startswith("FOOTER"))
    assert footer.text == "Whales are large."
    assert bullets.notes_slide.notes_text_frame.text == "Whales are large."


def test_tables_and_charts_are_native_and_described() -> None:
    """They can be edited, and have an alternative text."""
    deck = Presentation(BytesIO(render_pptx("Whales", _deck("Capacity"), PAPER)))
    (table,) = [shape for shape in deck.slides[5].shapes if shape.has_table]
    assert table.table.cell(0, 0).text == "Capacity"
    (chart,) = [shape for shape in deck.slides[6].shapes if shape.has_chart]
    assert list(chart.chart.plots[0].categories) == ["2023", "2024"]
    assert [list(series.values) for series in chart.chart.plots[0].series] == [[1.0, 2.0]]
    for shape in (table, chart):
        described = shape._element.nvGraphicFramePr.cNvPr.get("descr")
        assert described.startswith(("Table: Capacity", "Chart: Capacity"))


def test_a_brand_kit_is_applied() -> None:
    """Its colours and fonts are the file's theme, its logo is on every layout, and the PDF has them too."""
    content = render_pptx("Whales", _deck("Whales"), BRANDED)
    deck = Presentation(BytesIO(content))
    (theme,) = {
        relation.target_part.blob.decode()
        for relation in deck.slide_master.part.rels.values()
        if relation.reltype.endswith("/theme")
    }
    for named in ('"5B2A86"', '"FFCC00"', 'typeface="Georgia"', 'typeface="Verdana"'):
        assert named in theme
    for layout in deck.slide_layouts:
        assert [shape.image.blob for shape in layout.shapes if shape.shape_type == 13] == [_logo()]
    page = _picture(render_pdf("Whales", _deck("Whales"), BRANDED), 0)
    assert page.getpixel((480, 500)) == (0x5B, 0x2A, 0x86)
    assert page.getpixel((5, 270)) == (0xFF, 0xCC, 0x00)
    assert page.getpixel((850, 75)) == (0xFF, 0x00, 0xFF)


def _picture(pdf: bytes, number: int) -> Any:
    return pypdfium2.PdfDocument(pdf)[number].render(scale=1).to_pil().convert("RGB")


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_themes_can_be_read(theme: Theme) -> None:
    """All text contrasts with what is behind it, by WCAG's 4.5."""
    for colour in (theme.ink, theme.muted, theme.accent_text):
        assert contrast(colour, theme.background) >= 4.5
    assert contrast(theme.ink, theme.tint) >= 4.5
    assert contrast(theme.on_primary, theme.primary) >= 4.5


class _CountingMeasure(Measure):
    """Counts the characters that are measured."""

    measured = 0

    def width(self, text: str, size: float) -> float:
        """The width of a text."""
        type(self).measured += len(text)
        return super().width(text, size)


def test_a_word_of_many_lines_is_measured_once() -> None:
    """Its parts are as wide as fits, and breaking it takes no longer for each of them."""
    word = "WMwi" * 500
    lines = wrap(word, 60, 12, _CountingMeasure())
    assert "".join(lines) == word
    assert _CountingMeasure.measured < 4 * len(word)
    widths = [Measure().width(line, 12) for line in lines]
    assert max(widths) <= 60.001
    assert min(widths[:-1]) > 60 - Measure().width("W", 12)


@pytest.mark.parametrize("colour", ["FFFFFF", "000000", "FFCC00", "777777"])
def test_any_brand_can_be_read(colour: str) -> None:
    """Text on a brand's colour is black or white, and no text has an unreadable accent."""
    theme = branded(PAPER, BrandKit(primary=colour, accent=colour))
    assert contrast(theme.on_primary, theme.primary) >= 4.3
    assert contrast(theme.accent_text, theme.background) >= 4.5


def _png_of(width: int) -> bytes:
    """The beginning of a PNG that claims to be a square of this width."""
    content = b"\x89PNG\r\n\x1a\n"
    for chunk in (b"IHDR" + struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0), b"IDAT"):
        content += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return content


def _jpeg(scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    file = BytesIO()
    Image.new("L", (40, 40)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content[content.rfind(b"\xff\xda") : -2]
    return content[:-2] + last * scans + content[-2:]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"GIF89a", "not a PNG or JPEG"),
        (b"\x89PNG\r\n\x1a\n", "not a PNG"),
        (bytes(600_000), "larger than"),
        (_png_of(5_000), "wider or higher than"),
        (_png_of(30_000), "not a PNG or JPEG that can be read"),
        (_jpeg(1_000), "more than 100 scans"),
    ],
)
def test_a_logo_is_checked(content: bytes, says: str) -> None:
    """What is no picture, too large or slow to draw is refused with a reason; usual ones are not."""
    with pytest.raises(ValueError, match=says):
        check_logo(content)
    check_logo(_logo())
    check_logo(_jpeg(0))


@pytest.mark.parametrize(
    ("values", "label", "axis", "shown"),
    [
        (["16.2", "19", "34"], "#,##0.0", "#,##0", ["16.2", "19.0", "34.0", "0", "10", "40"]),
        (["12 %", "7 %"], '#,##0"%"', '#,##0"%"', ["12%", "7%", "0%"]),
        (["1,200", "800"], "#,##0", "#,##0", ["1,200", "800", "500"]),
        (["0.0012", "0.004"], "#,##0.0000", "#,##0.000", ["0.0012", "0.0040", "0.001"]),
        (["0", "0"], "#,##0", "#,##0", ["0", "1"]),
    ],
)
def test_charts_show_their_numbers_and_what_they_are(
    values: list[str], label: str, axis: str, shown: list[str]
) -> None:
    """Alike in both files: every number with the same digits, and the name of the only series."""
    rows = [[f"Sea {number}", value] for number, value in enumerate(values)]
    slides = [SlideContent(layout="chart", title="Power", table=Table(header=["", "In GW"], rows=rows))]
    shape = Presentation(BytesIO(render_pptx("Power", slides, PAPER))).slides[0].placeholders[1]
    assert shape.chart.plots[0].data_labels.number_format == label
    assert shape.chart.value_axis.tick_labels.number_format == axis
    assert (shape.chart.has_legend, shape.chart.plots[0].series[0].name) == (True, "In GW")
    words = PdfReader(BytesIO(render_pdf("Power", slides, PAPER))).pages[0].extract_text().split("\n")
    assert {*shown, "In GW"} <= {word.strip() for word in words}


def test_numbers_of_close_lines_are_not_on_each_other() -> None:
    """The lower of two close points has its number below it, in all files; other points stay as they are."""
    rows = [["2023", "44", "23", "24"], ["2024", "41", "33", "21"]]
    table = Table(header=["Year", "Hydro", "Solar", "Wind"], rows=rows)
    slides = [SlideContent(layout="chart", title="Output", table=table)]
    page = Presentation(BytesIO(render_pptx("Output", slides, PAPER))).slides[0]
    (chart,) = (shape.chart for shape in page.shapes if shape.has_chart)
    solar = chart.plots[0].series[1]
    assert solar.points[0].data_label.position == XL_LABEL_POSITION.BELOW
    assert (solar.data_labels.show_value, solar.data_labels.position) == (True, XL_LABEL_POSITION.ABOVE)
    heights: dict[str, float] = {}

    def visit(text: str, _cm: Any, tm: Any, *_: Any) -> None:
        heights.setdefault(text.strip(), tm[5])

    PdfReader(BytesIO(render_pdf("Output", slides, PAPER))).pages[0].extract_text(visitor_text=visit)
    assert heights["24"] - heights["23"] > 20, "a line apart"


def test_what_is_no_chart_is_a_table() -> None:
    """An editor may choose any layout: no file leaves out a table that no chart shows, or the bullets."""
    rows = [["UK", "Siemens"], ["Germany", "GE"]]
    slides = [
        SlideContent(layout="chart", title="Makers", table=Table(header=["Country", "Maker"], rows=rows)),
        SlideContent(layout="table", title="Makers", bullets=["Siemens and GE"]),
    ]
    deck = Presentation(BytesIO(render_pptx("Makers", slides, PAPER)))
    assert [slide.slide_layout.name for slide in deck.slides] == ["Table", "Bullets"]
    assert deck.slides[0].placeholders[1].table.cell(1, 1).text == "Siemens"
    pages = [page.extract_text() for page in PdfReader(BytesIO(render_pdf("Makers", slides, PAPER))).pages]
    assert "Germany" in pages[0]
    assert "Siemens and GE" in pages[1]


@pytest.mark.parametrize("text", ["鯨の話 & <b>", "a\x0bb\x00c", "\ud800x", "", "𝒳 emoji 🐋"])
def test_files_open_whatever_they_say(text: str) -> None:
    """Markup, control characters, lone surrogates, emoji and nothing at all make files that open."""
    slides = _deck(text)
    assert len(Presentation(BytesIO(render_pptx(text, slides, PAPER))).slides) == len(slides)
    assert len(PdfReader(BytesIO(render_pdf(text, slides, PAPER))).pages) == len(slides)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_few_short_bullets_fill_more_than_half_of_their_box(count: int) -> None:
    """They are large, and further apart than many are, but within the box."""
    slide = SlideContent(title="Wildlife", bullets=["Bubble curtains halve the noise"] * count)
    text = place(slide, THEMES["paper"]).texts[1]
    size, lines = text.fitted
    height = (len(lines) * LINE + (len(lines) - 1) * text.slot.gap) * size
    assert 0.55 * text.slot.box.height < height <= text.slot.box.height


def test_a_short_table_has_high_rows() -> None:
    """Its rows are higher than their text needs, and within the box."""
    table = Table(header=["Station", "Due"], rows=[["Westkant", "2029"], ["Zeeduin", "2031"]])
    placed = place(SlideContent(title="Grid", layout="table", table=table), THEMES["paper"]).table
    assert placed is not None
    assert all(height > 1.3 * (placed.size * LINE + 16) for height in placed.heights)
    assert sum(placed.heights) <= placed.box.height


def test_columns_of_figures_are_on_the_right() -> None:
    """With their header, in every format; a column with a letter, or without a digit, is on the left."""
    rows = [["Surgery", "16.4", "+8.6 %", "2 MW"], ["Emergency", "3.1", "–", "11 MW"]]
    table = Table(header=["Department", "2026", "Change", "Power"], rows=rows)
    slides = [SlideContent(layout="table", title="Revenue", table=table)]
    drawn = Presentation(BytesIO(render_pptx("Revenue", slides, PAPER))).slides[0].placeholders[1].table
    for row in drawn.rows:
        sides = [cell.text_frame.paragraphs[0].alignment for cell in row.cells]
        assert sides == [None, PP_ALIGN.RIGHT, PP_ALIGN.RIGHT, None]
    page = pypdfium2.PdfDocument(render_pdf("Revenue", slides, PAPER))[0].get_textpage()
    text = page.get_text_range()
    right = [page.get_charbox(text.index(cell) + len(cell) - 1)[2] for cell in ("2026", "16.4", "3.1")]
    assert max(right) - min(right) < 2
    shown, _ = share_page("Revenue", slides, PAPER)
    assert '<td class="figure">16.4</td><td class="figure">+8.6 %</td><td>2 MW</td>' in shown
