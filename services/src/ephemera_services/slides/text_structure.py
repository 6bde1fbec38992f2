"""The structure of plain text: headings, paragraphs, list items, tables and sentences.

Headings are those of Markdown, underlined lines, and short lines of their own above a paragraph. Tables are
those of Markdown, and lines with tabs.

The module imports little of the service, since documents are read in a process with little time and memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ephemera_services.slides.markdown_text import unmarked

_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*")
_UNDERLINE = re.compile(r"={3,}|-{3,}")
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2})*)\.?\s+\S")
_MONTH = (
    r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember|Jänner|Feber)\b"
)
"""Of a language that writes a day as an ordinal, "3. Juni", and begins nouns with a capital letter."""
_ITEM = re.compile(rf"\s*(?:[-*+•▪–]|\d{{1,3}}[.)](?!\s+{_MONTH}))\s+(?:\[[ xX]\]\s+)?(?=\S)")
_CAPTION = re.compile(
    r"(?:(Table|Tabelle|Tab\.|Tableau|Tabla|Tabella|Tabela|Tabulka|Таблица|Tablo|Πίνακας)"
    r"|Figure|Fig\.|Abbildung|Abb\.|Figura|Rysunek|Rys\.|Obrázek|Obr\.|Рисунок|Рис\.|Şekil|Σχήμα)"
    r"\s*\d{1,3}[a-z]?\s*[.:–—-]\s*(\S.{0,200})",
    re.IGNORECASE,
)
_LEADER = re.compile(r"(?:[.·…]\s?){4,}\s*(?:\d{1,4}|[ivxlc]{1,7})\s*$")
"""At the end of a line of a table of contents: dots, and the number of a page."""
_MAX_ENTRY = 300  # characters of such a line
_RULE = set(" :+-")  # what the line below the header of a table is made of
_MAX_HEADING_WORDS = 9
_MAX_HEADING = 80  # characters
_ENDS_SENTENCE = ".!?:;,…。！？"
_SENTENCE = re.compile(
    r"(?:(?<=[.!?。！？])|(?<=[.!?。！？][\"'»”)])|(?<=[.!?。！？][\"'»”)]{2}))\s+(?=\S)"
    r"|(?<=[。！？])(?![」』”）])|(?<=[。！？][」』”）])"
)
_MAX_SENTENCE = 400  # characters; a longer one is cut
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:(?:[^\W\d_]\.)*[^\W\d_]|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|Fig|Figs|Tab|Sec|Ch|Eq|Vol|pp|Abb|Bd|vs|cf|ca|approx|"
    r"Inc|Ltd|Corp|Jan|Feb|Aug|Sept|Oct|Okt|Nov|Dec|Dez|Mio|Mrd|Tsd|inkl|ggf|bzgl|Sr|Sra|Dra|núm|pág|Sig|dott|pag|"
    r"z\.\s?B|d\.\s?h|bzw|ul|np|tj|tzn|čl|ул|им|см|напр|чел|гг|вв|руб|тыс|млн|млрд|стр|рис|табл|т\.\s?[едп])\.$",
    re.IGNORECASE,
)
_MAY_END = re.compile(
    r"(?:\d\s*[^\W\d_]|[ap]\.m|Inc|Ltd|Corp|Jan|Feb|Aug|Sept|Oct|Okt|Nov|Dec|Dez|руб|тыс|чел|гг|вв|млн|млрд|т\.\s?[едп])\.$"
)
"""Abbreviations after which a capital letter begins a sentence: "in 6 h. Then", "в 2024 г. Затем"."""
_MIN_SENTENCE = 4  # words before such a one
_ORDINAL = re.compile(r"\b(?:am|zum|vom|im|der|die|das|dem|den|des|jede[mnrs]?)\s+\d{1,2}\.$", re.IGNORECASE)
_DAY = re.compile(r"(?:^|\s)\d{1,2}\.$")
_BEGINS_WITH_MONTH = re.compile(_MONTH)


class Block(NamedTuple):
    """A heading with its level, from 0 for the title of a document; a paragraph; or a table."""

    text: str
    level: int | None = None
    rows: list[list[str]] | None = None


def text_blocks(text: str) -> Iterator[Block]:
    """The blocks of a text, in order."""
    groups = [lines for part in re.split(r"\n[ \t]*\n", text) if (lines := _lines(part))]
    level = 1
    for lines, following in zip(groups, [*groups[1:], None], strict=False):
        if _is_heading(lines, following):
            yield Block(lines[0].strip(), _level(lines[0].strip()) or level)
            continue
        for block in _group(lines):
            level = level if block.level is None else block.level
            yield block


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, each on one line."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        for part in _joined(_SENTENCE.split(" ".join(paragraph.split()))):
            found += (part[at : at + _MAX_SENTENCE] for at in range(0, len(part), _MAX_SENTENCE))
    return [each.strip() for each in found if each.strip()]


def is_caption(paragraph: str) -> bool:
    """Whether a paragraph names a table or a picture, such as "Table 1: Results"."""
    return _CAPTION.fullmatch(paragraph) is not None


def table_title(paragraph: str) -> str:
    """What the caption of a table says of it; empty for any other paragraph."""
    found = _CAPTION.fullmatch(paragraph)
    return found[2].rstrip(" .") if found is not None and found[1] else ""


def is_abbreviated(text: str) -> bool:
    """Whether the dot at the end of a text is that of an abbreviation."""
    return _ABBREVIATION.search(text[-12:]) is not None


def _joined(parts: list[str]) -> Iterator[str]:
    """Sentences again, where an abbreviation was taken for the end of one."""
    sentence = ""
    for part in parts:
        continues = part[:1].islower() or _goes_on(sentence, part)
        if sentence and (not continues or len(sentence) > _MAX_SENTENCE):
            yield sentence
            sentence = part
        else:
            sentence = f"{sentence} {part}" if sentence else part
    if sentence:
        yield sentence


def _goes_on(sentence: str, following: str) -> bool:
    """Whether the last word of a sentence is an abbreviation or an ordinal number within it."""
    end = sentence[-12:]
    if _ORDINAL.search(end) or (_DAY.search(end) and _BEGINS_WITH_MONTH.match(following)):
        return True
    if not is_abbreviated(sentence):
        return False
    is_long = len(sentence.split()) >= _MIN_SENTENCE
    return not (is_long and following[:1].isupper() and _MAY_END.search(end))


def _lines(part: str) -> list[str]:
    return [line.rstrip() for line in part.splitlines() if line.strip() and not _is_entry(line)]


def _is_entry(line: str) -> bool:
    """Whether a line is one of a table of contents."""
    return len(line) <= _MAX_ENTRY and _LEADER.search(line) is not None


def _is_heading(lines: list[str], following: list[str] | None) -> bool:
    """Whether a line stands alone like a heading: short, not a sentence, and above a paragraph."""
    line = lines[0].strip()
    if len(lines) > 1 or following is None or line[0] == "#" or _cells(line) or is_caption(line):
        return False
    short = len(line) <= _MAX_HEADING and len(line.split()) <= _MAX_HEADING_WORDS
    named = line[:1].isupper() or _NUMBERED.match(line) is not None
    if not short or not named or line[-1] in _ENDS_SENTENCE:
        return False
    return len(" ".join(following)) > len(line) or _cells(following[0]) is not None


def _level(line: str) -> int:
    """By its number, as in 2.1; 0 if it has none."""
    numbered = _NUMBERED.match(line)
    return 0 if numbered is None else min(1 + numbered[1].count("."), 6)


def _group(lines: list[str]) -> Iterator[Block]:
    """The blocks of lines without a blank one between them."""
    paragraph: list[str] = []
    table: list[list[str]] = []
    for line in [*lines, ""]:
        cells = _cells(line)
        if table and cells is None:
            yield from _table(table)
            table = []
        heading = _HEADING.fullmatch(line.strip()) if line[:1] == "#" and len(line) < 300 else None
        if paragraph and (not line or heading or cells is not None or _ITEM.match(line)):
            yield Block(_paragraph(paragraph))
            paragraph = []
        if heading is not None:
            yield Block(unmarked(heading[2]), len(heading[1]))
        elif cells is not None:
            table.append(cells)
        elif len(paragraph) == 1 and _UNDERLINE.fullmatch(line.strip()):
            yield Block(unmarked(paragraph.pop()), 1 if line.strip()[0] == "=" else 2)
        elif line:
            item = _ITEM.match(line)
            paragraph.append(line[item.end() if item else 0 :].strip())


def _paragraph(lines: list[str]) -> str:
    """Join lines, and words that were hyphenated at the end of one."""
    parts = lines[:1]
    for before, line in pairwise(lines):
        broken = before[-3:-1].isalpha() and before[-1] == "-" and line[:1].islower()
        if broken:
            parts[-1] = parts[-1][:-1] + line
        else:
            parts.append(line)
    return unmarked(" ".join(parts))


def _cells(line: str) -> list[str] | None:
    """The cells of a line of a table; None for any other line."""
    stripped = line.strip()
    if stripped.startswith("|") and stripped.count("|") > 1:
        return [cell.strip() for cell in stripped.strip("|").split("|")]
    if line.count("\t") >= 1 and not line.startswith("\t"):
        return [cell.strip() for cell in re.split(r"\t+", stripped)]
    return None


def _table(rows: list[list[str]]) -> Iterator[Block]:
    """A table, or a paragraph if it is a single line."""
    kept = [[unmarked(cell) for cell in row] for row in rows if not set("".join(row)) <= _RULE]
    if len(kept) > 1:
        yield Block("", rows=kept)
    elif kept:
        yield Block(" ".join(kept[0]))
