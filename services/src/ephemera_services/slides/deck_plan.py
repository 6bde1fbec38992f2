"""Plans a deck from documents without a model: every section is shown, in order, and no sentence twice.

The deck begins with a title and an agenda and ends with the sources, unless it is to have fewer than four
slides. A section is a slide of bullets, a heading above subsections is a divider, and a table is a slide of
its own: a chart if it is one of numbers. If there are more sections than slides, neighbours share a slide
with two columns; if there are more than twice as many, subsections become part of their sections first. What
remains makes the deck longer than it was meant to be; nothing is left out.

Without documents the deck is a skeleton, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ephemera_services.slides.chart_data import chart_data
from ephemera_services.slides.deck import Column, Layout, SlideContent, table_of
from ephemera_services.slides.frame_words import frame_words
from ephemera_services.slides.key_sentences import SentencePicker, first, headline
from ephemera_services.slides.text_structure import sentences

_FRAME = 3  # title, agenda and sources
_MAX_NOTES = 2_000  # characters
_COLUMN_BULLETS = 4


class TitledTable(NamedTuple):
    """A table, and the heading above it."""

    title: str
    rows: list[list[str]]


class Section(NamedTuple):
    """A section of a document."""

    document: str
    heading: str
    level: int
    text: str
    """Its paragraphs, a blank line between them."""
    tables: list[TitledTable]

    @property
    def is_divider(self) -> bool:
        """Whether it has no content of its own."""
        return not self.text and not self.tables


def plan_deck(topic: str, slides: int, language: str, sections: Sequence[Section]) -> list[SlideContent]:
    """The slides of a deck."""
    framed = slides > _FRAME
    room = slides - _FRAME if framed else slides
    if not sections:
        return _skeleton(topic, room, language, framed=framed)
    title, body = _title_of(sections)
    content = _content(_divided(_reduced(body, room), room))
    content = _paired(content, room)
    if not framed:
        return content
    words = frame_words(language)
    documents = list(dict.fromkeys(section.document for section in sections))
    subtitle = [title] if title and title.casefold() != topic.casefold() else []
    return [
        SlideContent(layout="title", title=topic, bullets=subtitle, sources=documents),
        SlideContent(layout="agenda", title=words.agenda, bullets=_agenda(content)),
        *content,
        SlideContent(layout="closing", title=words.sources, sources=documents),
    ]


def _agenda(content: Sequence[SlideContent]) -> list[str]:
    """The titles of dividers, or else of all slides."""
    dividers = [slide.title for slide in content if slide.layout == "section"]
    titles = [slide.title for slide in content] if len(dividers) < 2 else dividers
    return list(dict.fromkeys(titles))


def _title_of(sections: Sequence[Section]) -> tuple[str, list[Section]]:
    """The title of a document, which is not a section, and the others."""
    top, *others = sections
    is_title = top.heading and (
        top.level == 0
        or (others and all(section.level > top.level for section in others))
        or (top.is_divider and others and others[0].level <= top.level)
    )
    if not is_title:
        return "", list(sections)
    if top.is_divider and others:
        return top.heading, others
    level = min((section.level for section in others), default=1)
    return top.heading, [top._replace(level=level), *others]


def _reduced(sections: list[Section], room: int) -> list[Section]:
    """With the deepest subsections as part of the sections above them, while there are too many to pair."""
    while len(sections) > 2 * room and len({section.level for section in sections}) > 1:
        deepest = max(section.level for section in sections)
        reduced: list[Section] = []
        for section in sections:
            if section.level == deepest and reduced and reduced[-1].document == section.document:
                reduced[-1] = _joined(reduced[-1], section)
            else:
                reduced.append(section._replace(level=min(section.level, deepest - 1)))
        sections = reduced
    return sections


def _joined(one: Section, other: Section) -> Section:
    text = "\n\n".join(filter(None, (one.text, other.text)))
    return one._replace(text=text, tables=[*one.tables, *other.tables])


def _divided(sections: list[Section], room: int) -> list[Section]:
    """A text without headings, in as many parts as there is room for."""
    if len(sections) > 1 or sections[0].heading or not sections[0].text:
        return sections
    (whole,) = sections
    paragraphs = whole.text.split("\n\n")
    parts = min(room, len(paragraphs))
    bounds = [len(paragraphs) * at // parts for at in range(parts + 1)]
    divided = [
        whole._replace(text="\n\n".join(paragraphs[start:end]), tables=[]) for start, end in pairwise(bounds)
    ]
    divided[-1] = divided[-1]._replace(tables=whole.tables)
    return divided


def _content(sections: Sequence[Section]) -> list[SlideContent]:
    picker, slides = SentencePicker(), list[SlideContent]()
    for section in sections:
        found = sentences(section.text)
        title = section.heading or headline(first(found) or section.document)
        bullets = picker.pick(title, found)
        if section.is_divider or (found and not bullets):
            slides.append(SlideContent(layout="section", title=title, sources=[section.document]))
        if bullets:
            notes = _notes(section)
            slides.append(SlideContent(title=title, bullets=bullets, notes=notes, sources=[section.document]))
        slides += _tables(section, title)
    return _without_lonely_dividers(slides)


def _without_lonely_dividers(slides: list[SlideContent]) -> list[SlideContent]:
    """Dividers with something behind them."""
    after = [*slides[1:], SlideContent(layout="section", title="")]
    return [
        slide
        for slide, following in zip(slides, after, strict=True)
        if slide.layout != "section" or following.layout != "section"
    ] or slides


def _tables(section: Section, title: str) -> list[SlideContent]:
    slides = []
    for heading, rows in section.tables:
        table = table_of(rows)
        if table is not None:
            layout: Layout = "table" if chart_data(table) is None else "chart"
            notes = "\n".join(" | ".join(row) for row in rows)[:_MAX_NOTES]
            slide = SlideContent(layout=layout, title=heading or title, table=table, notes=notes)
            slides.append(msgspec.structs.replace(slide, sources=[section.document]))
    return slides


def _notes(section: Section) -> str:
    text = section.text if len(section.text) <= _MAX_NOTES else section.text[:_MAX_NOTES] + "…"
    return f"{text}\n\n({section.document})"


def _paired(slides: list[SlideContent], room: int) -> list[SlideContent]:
    """With neighbours in two columns, while there are too many slides."""
    surplus, paired = len(slides) - room, list[SlideContent]()
    waiting = list(slides)
    while waiting:
        one = waiting.pop(0)
        if surplus > 0 and waiting and one.layout == waiting[0].layout == "bullets":
            one, surplus = _pair(one, waiting.pop(0)), surplus - 1
        paired.append(one)
    return paired


def _pair(left: SlideContent, right: SlideContent) -> SlideContent:
    columns = [
        Column(heading=slide.title, bullets=slide.bullets[:_COLUMN_BULLETS]) for slide in (left, right)
    ]
    return SlideContent(
        layout="two_columns",
        title=f"{left.title} · {right.title}",
        columns=columns,
        notes=f"{left.notes}\n\n{right.notes}",
        sources=list(dict.fromkeys([*left.sources, *right.sources])),
    )


def _skeleton(topic: str, room: int, language: str, *, framed: bool) -> list[SlideContent]:
    """Slides to be written, in a usual order."""
    words = frame_words(language)
    content = []
    for number in range(room):
        part, again = words.parts[number % len(words.parts)], number // len(words.parts)
        title = f"{part.title} ({again + 1})" if again else part.title
        bullets = [f"{words.to_write}: {hint}" for hint in part.hints]
        content.append(SlideContent(title=title, bullets=bullets, notes=words.is_skeleton))
    if not framed:
        return content
    return [
        SlideContent(layout="title", title=topic, bullets=[words.is_skeleton]),
        SlideContent(layout="agenda", title=words.agenda, bullets=[slide.title for slide in content]),
        *content,
        SlideContent(layout="closing", title=words.sources, bullets=[words.no_sources]),
    ]
