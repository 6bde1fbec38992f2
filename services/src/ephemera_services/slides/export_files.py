"""A presentation as a file: PPTX by python-pptx, PDF by reportlab. Both open in what people have."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import Any

import msgspec

PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
PDF = "application/pdf"

_LATIN = "Helvetica"
_JAPANESE = "HeiseiKakuGo-W5"  # reportlab has it without a file; viewers bring the glyphs
_WIDE = (960, 540)  # points: 16:9


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A slide to be drawn."""

    title: str
    bullets: list[str]
    notes: str
    sources: list[str]


def as_pptx(title: str, pages: Sequence[Page]) -> bytes:
    """A PPTX: one slide a page, with the speaker's notes."""
    from pptx import Presentation
    from pptx.util import Pt

    deck = Presentation()
    deck.core_properties.title = _plain(title)[:255]
    deck.slide_width, deck.slide_height = Pt(_WIDE[0]), Pt(_WIDE[1])
    for page in pages:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        heading, body = slide.shapes.title, slide.placeholders[1]
        heading.left, heading.top, heading.width, heading.height = Pt(48), Pt(30), Pt(864), Pt(90)
        body.left, body.top, body.width, body.height = Pt(48), Pt(130), Pt(864), Pt(370)
        heading.text = _plain(page.title)
        frame = body.text_frame
        frame.word_wrap = True
        for number, bullet in enumerate(page.bullets):
            paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
            paragraph.text = _plain(bullet)
            paragraph.font.size = Pt(20)
        if page.notes:
            slide.notes_slide.notes_text_frame.text = _plain(page.notes)
    file = BytesIO()
    deck.save(file)
    return file.getvalue()


def as_pdf(title: str, pages: Sequence[Page]) -> bytes:
    """A PDF: one page a slide."""
    from reportlab.lib.enums import TA_LEFT
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.platypus import KeepInFrame, PageBreak, Paragraph, SimpleDocTemplate, Spacer

    file = BytesIO()
    document = SimpleDocTemplate(
        file, pagesize=_WIDE, title=_plain(title)[:255], leftMargin=48, rightMargin=48, topMargin=40,
        bottomMargin=30,
    )  # fmt: skip
    font = _font([title, *(text for page in pages for text in (page.title, *page.bullets))])
    heading = ParagraphStyle("heading", fontName=font, fontSize=30, leading=36, alignment=TA_LEFT)
    point = ParagraphStyle("point", fontName=font, fontSize=18, leading=24, leftIndent=18, spaceAfter=8)
    small = ParagraphStyle("small", fontName=font, fontSize=9, leading=11, textColor="#666666")
    flow: list[Any] = []
    for number, page in enumerate(pages):
        if number:
            flow.append(PageBreak())
        body = [Paragraph(_marked(page.title), heading), Spacer(1, 18)]
        body += [Paragraph(_marked(bullet), point, bulletText="•") for bullet in page.bullets]
        if page.sources:
            body.append(Paragraph(_marked("Sources: " + ", ".join(page.sources)), small))
        flow.append(KeepInFrame(_WIDE[0] - 110, _WIDE[1] - 90, body, mode="shrink"))
    document.build(flow)
    return file.getvalue()


def _font(texts: Sequence[str]) -> str:
    """A font that has the texts' characters, as far as one can without files."""
    from reportlab.lib.fonts import tt2ps  # noqa: F401 - reportlab's fonts must be set up first
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont

    if all(ord(character) < 0x2030 for text in texts for character in text):
        return _LATIN
    pdfmetrics.registerFont(UnicodeCIDFont(_JAPANESE))
    return _JAPANESE


def _marked(text: str) -> str:
    """A text for reportlab's paragraphs, which are a kind of XML."""
    return escape(_plain(text))


def _plain(text: str) -> str:
    """A text without what XML cannot hold."""
    return "".join(
        each for each in text if each in "\t\n" or (each >= " " and not 0xD800 <= ord(each) <= 0xDFFF)
    )
