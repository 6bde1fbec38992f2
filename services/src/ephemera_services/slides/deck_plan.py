"""Plans a deck from documents without a model: every section is shown, in order, and no sentence twice.

The deck begins with a title and an agenda and ends with the sources, unless it is to have fewer than four
slides. A section is a slide of bullets, a heading above subsections is a divider, and a table is a slide of
its own: a chart if it is one of numbers. If there are more sections than slides, neighbours share a slide
with two columns; if there are more than twice as many, subsections become part of their sections first, up to
five on a slide, each with a bullet at least. What remains makes the deck longer than it was meant to be: no
section and no table is left out. What five bullets have no room for is in the speaker notes.

Without documents the deck is a skeleton, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise, takewhile
from typing import NamedTuple

import msgspec

from ephemera_services.slides.bullet_parts import MAX_WORDS
from ephemera_services.slides.chart_data import chart_data
from ephemera_services.slides.deck import Column, Layout, SlideContent, Table, table_of
from ephemera_services.slides.frame_words import frame_words
from ephemera_services.slides.key_sentences import (
    MAX_BULLETS,
    Passage,
    SentencePicker,
    continued,
    first,
    headline,
    words,
)
from ephemera_services.slides.text_structure import is_abbreviated, is_caption, sentences

_FRAME = 3  # title, agenda and sources
_MAX_NOTES = 9_000  # characters
_MAX_BYLINES = 3
_CITED_WORDS = 20  # of the headings of a source
_COLUMN_WORDS = 8  # of the columns that name a table
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2})*)[.)]?\s+(?=[^\W\d_])")


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


class _Group(NamedTuple):
    """Sections that share a slide: one, and subsections that have become part of it."""

    level: int
    sections: list[Section]

    @property
    def passages(self) -> int:
        """How many of them have text."""
        return sum(bool(section.text) for section in self.sections)


def plan_deck(topic: str, slides: int, language: str, sections: Sequence[Section]) -> list[SlideContent]:
    """The slides of a deck."""
    framed = slides > _FRAME
    room = slides - _FRAME if framed else slides
    if not sections:
        return _skeleton(topic, room, language, framed=framed)
    subtitle, body = _title_of(_without_numbers(sections), framed=framed)
    groups = _reduced(_divided(body, room), room)
    content = _content(groups)
    agenda = _agenda(content, [group.sections[0] for group in groups])
    content = _paired(content, room)
    if not framed:
        return content
    frame = frame_words(language)
    documents = list(dict.fromkeys(section.document for section in sections))
    cited = [_cited(document, [each for each in body if each.document == document]) for document in documents]
    named = " · ".join(each for each in subtitle if each.casefold() != topic.casefold())
    return [
        SlideContent(layout="title", title=topic, bullets=[named] if named else [], sources=documents),
        SlideContent(layout="agenda", title=frame.agenda, bullets=agenda),
        *content,
        SlideContent(layout="closing", title=frame.sources, sources=cited),
    ]


def _cited(document: str, sections: Sequence[Section]) -> str:
    """A document, with the headings of its highest level."""
    named = [section for section in sections if section.heading]
    top = min((section.level for section in named), default=0)
    headings = dict.fromkeys(section.heading for section in named if section.level == top)
    return f"{document}: {_listed(headings, _CITED_WORDS)}" if headings else document


def _listed(names: Iterable[str], limit: int) -> str:
    """Names with commas between them, of about this many words in all."""
    shown, count = list[str](), 0
    for name in filter(None, names):
        count += len(name.split())
        if shown and count > limit:
            return f"{', '.join(shown)}…"
        shown.append(name)
    return ", ".join(shown)


def _agenda(content: Sequence[SlideContent], sections: Sequence[Section]) -> list[str]:
    """The headings of the highest level, or of all levels, or else the titles of slides."""
    titles = [slide.title for slide in content]
    headings = [(section.level, section.heading) for section in sections if section.heading in titles]
    top = min(headings)[0] if headings else 0
    chapters = [heading for level, heading in headings if level == top]
    if len(chapters) < 2:
        chapters = [heading for _, heading in headings]
    return list(dict.fromkeys(chapters or titles))


def _without_numbers(sections: Sequence[Section]) -> list[Section]:
    """Without the numbers of headings in documents that count them: they would be those of the slides."""
    found: list[Section] = []
    for _, group in groupby(sections, key=lambda section: section.document):
        document = list(group)
        named = [section.heading for section in document if section.heading]
        numbers = [[int(each) for each in m[1].split(".")] for m in map(_NUMBERED.match, named) if m]
        bare = [_NUMBERED.sub("", heading) for heading in named]
        counted = len(numbers) > 1 and numbers[0][0] < 2 and numbers == sorted(numbers)
        if counted and 2 * len(numbers) >= len(named) and len(set(bare)) == len(set(named)):
            document = [_renamed(section, _NUMBERED.sub("", section.heading)) for section in document]
        found += document
    return found


def _renamed(section: Section, heading: str) -> Section:
    tables = [
        table._replace(title=heading) if table.title == section.heading else table for table in section.tables
    ]
    return section._replace(heading=heading, tables=tables)


def _title_of(sections: Sequence[Section], *, framed: bool) -> tuple[list[str], list[Section]]:
    """The title of a document, which is not a section, with the authors and dates below it; the others."""
    top, *others = sections
    lines = top.text.split("\n\n")
    if not others and top.heading and len(sentences(top.text)) > MAX_BULLETS:
        return [top.heading], [top._replace(heading="")]  # too much for a slide: it is divided
    if framed and others and not top.heading and _is_byline(top):
        return lines, others  # lines above the first heading
    is_title = top.heading and (
        top.level == 0
        or (others and all(section.level > top.level for section in others))
        or (others and others[0].level <= top.level and (top.is_divider or (framed and _is_byline(top))))
    )
    if not is_title:
        return [], list(sections)
    is_short = framed and not top.tables and len(top.text.split()) <= MAX_WORDS
    if others and (top.is_divider or is_short):
        return [top.heading, *filter(None, lines)], others
    level = min((section.level for section in others), default=1)
    return [top.heading], [top._replace(level=level), *others]


def _is_byline(section: Section) -> bool:
    """Whether its text is no more than names and dates: a few lines, none of them a sentence."""
    lines = section.text.split("\n\n")
    return not section.tables and len(lines) <= _MAX_BYLINES and not any(map(_is_prose, lines))


def _is_prose(line: str) -> bool:
    ends = line[-1:] in (".", "!", "?") and not is_abbreviated(line)
    return not line or ends or len(line.split()) > MAX_WORDS


def _reduced(sections: Sequence[Section], room: int) -> list[_Group]:
    """With the deepest subsections as part of the sections above them, while there are too many to pair."""
    groups = [_Group(section.level, [section]) for section in sections]
    while len(groups) > 2 * room and len({group.level for group in groups}) > 1:
        deepest = max(group.level for group in groups)
        reduced: list[_Group] = []
        for group in groups:
            if group.level == deepest and reduced and _fit_together(reduced[-1], group):
                reduced[-1].sections.extend(group.sections)
            else:
                reduced.append(group._replace(level=min(group.level, deepest - 1)))
        groups = reduced
    return groups


def _fit_together(one: _Group, other: _Group) -> bool:
    """Whether all passages of two groups get a bullet on one slide."""
    same = one.sections[0].document == other.sections[0].document
    return same and one.passages + other.passages <= MAX_BULLETS


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


def _content(groups: Sequence[_Group]) -> list[SlideContent]:
    picker, slides = SentencePicker(), list[SlideContent]()
    for number, group in enumerate(groups):
        head = group.sections[0]
        texts = [sentences(_without_captions(section.text)) for section in group.sections]
        title = head.heading or headline(first(texts[0]) or head.document)
        if not head.heading:
            texts[0] = continued(title, texts[0])
        named = [title, *(section.heading for section in group.sections[1:])]
        bullets = picker.pick([Passage(*each) for each in zip(named, texts, strict=True)])
        tables = [section for section in group.sections if section.tables]
        if not bullets and (any(texts) or not tables):
            below = _below(group, groups[number + 1 :])
            slides.append(SlideContent(layout="section", title=title, bullets=below, sources=[head.document]))
        if bullets:
            notes = _notes(group.sections)
            slides.append(SlideContent(title=title, bullets=bullets, notes=notes, sources=[head.document]))
        for at, section in enumerate(tables):
            slides += _tables(section, section.heading or title, is_alone=not bullets and at == 0)
    return _without_lonely_dividers(slides)


def _below(group: _Group, others: Sequence[_Group]) -> list[str]:
    """The headings of the next level below a divider, as one line."""
    document = group.sections[0].document
    inside = list(
        takewhile(lambda each: each.level > group.level and each.sections[0].document == document, others)
    )
    level = min((each.level for each in inside), default=0)
    line = _listed((each.sections[0].heading for each in inside if each.level == level), _CITED_WORDS)
    return [line] if line else []


def _without_captions(text: str) -> str:
    return "\n\n".join(each for each in text.split("\n\n") if not is_caption(each))


def _without_lonely_dividers(slides: list[SlideContent]) -> list[SlideContent]:
    """Dividers with something behind them."""
    after = [*slides[1:], SlideContent(layout="section", title="")]
    return [
        slide
        for slide, following in zip(slides, after, strict=True)
        if slide.layout != "section" or following.layout != "section"
    ] or slides


def _tables(section: Section, title: str, *, is_alone: bool) -> list[SlideContent]:
    """A slide for each table, titled by its caption, or else by its section and its columns."""
    slides: list[SlideContent] = []
    for heading, rows in section.tables:
        table = table_of(rows)
        if table is not None:
            layout: Layout = "table" if chart_data(table) is None else "chart"
            notes = "\n".join(" | ".join(row) for row in rows)[:_MAX_NOTES]
            is_captioned = heading and heading != section.heading
            columns = _listed(_columns(title, table, layout), _COLUMN_WORDS)
            named = heading if is_captioned else f"{title}: {columns}" if columns else title
            name = title if is_alone and not slides else named
            slide = SlideContent(layout=layout, title=name, table=table, notes=notes)
            slides.append(msgspec.structs.replace(slide, sources=[section.document]))
    return slides


def _columns(title: str, table: Table, layout: Layout) -> Sequence[str]:
    """The columns that name a table: without the one that says what its rows are, if it is clear."""
    rows = words(table.header[0])
    return table.header[1:] if layout == "chart" or (rows and rows <= words(title)) else table.header


def _notes(sections: Sequence[Section]) -> str:
    whole = "\n\n".join(section.text for section in sections if section.text)
    text = whole if len(whole) <= _MAX_NOTES else whole[:_MAX_NOTES] + "…"
    return f"{text}\n\n({sections[0].document})"


def _paired(slides: list[SlideContent], room: int) -> list[SlideContent]:
    """With neighbours in two columns, those with the fewest bullets first, while there are too many."""
    neighbours, at = list[int](), 0
    while at + 1 < len(slides):
        are_bullets = slides[at].layout == slides[at + 1].layout == "bullets"
        neighbours += [at] * are_bullets
        at += 1 + are_bullets
    surplus = max(len(slides) - room, 0)
    shortest = sorted(neighbours, key=lambda at: len(slides[at].bullets) + len(slides[at + 1].bullets))
    first_ones = set(shortest[:surplus])
    return [
        _pair(slide, slides[at + 1]) if at in first_ones else slide
        for at, slide in enumerate(slides)
        if at - 1 not in first_ones
    ]


def _pair(left: SlideContent, right: SlideContent) -> SlideContent:
    columns = [Column(heading=slide.title, bullets=slide.bullets) for slide in (left, right)]
    return SlideContent(
        layout="two_columns",
        title=f"{left.title} · {right.title}",
        columns=columns,
        notes=f"{left.notes}\n\n{right.notes}",
        sources=list(dict.fromkeys([*left.sources, *right.sources])),
    )


def _skeleton(topic: str, room: int, language: str, *, framed: bool) -> list[SlideContent]:
    """Slides to be written, in a usual order."""
    frame = frame_words(language)
    content = []
    for number in range(room):
        part, again = frame.parts[number % len(frame.parts)], number // len(frame.parts)
        title = f"{part.title} ({again + 1})" if again else part.title
        bullets = [f"{frame.to_write}: {hint}" for hint in part.hints]
        content.append(SlideContent(title=title, bullets=bullets, notes=frame.is_skeleton))
    if not framed:
        return content
    return [
        SlideContent(layout="title", title=topic, bullets=[frame.is_skeleton]),
        SlideContent(layout="agenda", title=frame.agenda, bullets=[slide.title for slide in content]),
        *content,
        SlideContent(layout="closing", title=frame.sources, bullets=[frame.no_sources]),
    ]
