"""Content as it is cached and returned by the routes."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

PartName = Literal["witnesses", "words", "xrefs", "commentary"]
PART_NAMES: tuple[PartName, ...] = get_args(PartName)
"""The parts of a passage, which are cached separately."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A verse in all translations."""

    id: str
    reference: str
    book_id: str
    chapter: int
    verse: int
    texts: dict[str, str]


class PassagePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a passage, as it was ingested."""

    items: list[dict[str, Any]]


class Verse(msgspec.Struct, frozen=True, kw_only=True):
    """A verse of a chapter."""

    passage_id: str
    verse: int
    text: str


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """A chapter in one translation; the verses that the corpus has."""

    book_id: str
    book: str
    chapter: int
    translation: str
    verses: list[Verse]


class BookContents(msgspec.Struct, frozen=True, kw_only=True):
    """A book of a translation: its chapters with their numbers of verses."""

    id: str
    name: str
    chapters: dict[int, int]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The books of a translation, in the usual order."""

    books: list[BookContents]


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """A translation, and the number of its verses."""

    id: str
    name: str
    rights: str
    verses: int


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, and the passages about it."""

    id: str
    title: str
    summary: str
    passages: list[str]


class LexiconEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A word of Hebrew or Greek."""

    id: str
    language: str
    lemma: str
    transliteration: str
    gloss: str
    definition: str


class Quotation(msgspec.Struct, frozen=True, kw_only=True):
    """A passage in one translation, in search results and answers."""

    id: str
    reference: str
    translation: str
    text: str


class Hit(Quotation, frozen=True, kw_only=True):
    """A passage that a search found."""

    highlights: list[tuple[int, int]]
    """Where its text has words of the search: from a character, to before another."""


class AiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, and the passages it is based on."""

    text: str
    passages: list[Quotation]
    model: str
    tokens: int
    corpus: int = 0
    """The corpus version that it was made from, at least."""


_NAMES = """\
gen Genesis, exod Exodus, lev Leviticus, num Numbers, deut Deuteronomy, josh Joshua, judg Judges, ruth
Ruth, 1sam 1 Samuel, 2sam 2 Samuel, 1kgs 1 Kings, 2kgs 2 Kings, 1chr 1 Chronicles, 2chr 2 Chronicles,
ezra Ezra, neh Nehemiah, esth Esther, job Job, ps Psalm, prov Proverbs, eccl Ecclesiastes, song Song of
Solomon, isa Isaiah, jer Jeremiah, lam Lamentations, ezek Ezekiel, dan Daniel, hos Hosea, joel Joel, amos
Amos, obad Obadiah, jonah Jonah, mic Micah, nah Nahum, hab Habakkuk, zeph Zephaniah, hag Haggai, zech
Zechariah, mal Malachi, matt Matthew, mark Mark, luke Luke, john John, acts Acts, rom Romans, 1cor 1
Corinthians, 2cor 2 Corinthians, gal Galatians, eph Ephesians, phil Philippians, col Colossians, 1thess 1
Thessalonians, 2thess 2 Thessalonians, 1tim 1 Timothy, 2tim 2 Timothy, titus Titus, phlm Philemon, heb
Hebrews, jas James, 1pet 1 Peter, 2pet 2 Peter, 1john 1 John, 2john 2 John, 3john 3 John, jude Jude, rev
Revelation"""

BOOKS: dict[str, str] = {}
"""Book names by id."""
for _entry in _NAMES.replace("\n", " ").split(","):
    _id, _, _name = _entry.strip().partition(" ")
    BOOKS[_id] = _name


def passage_id(book_id: str, chapter: int, verse: int) -> str:
    """The id of a verse, as in `john.3.16`."""
    return f"{book_id}.{chapter}.{verse}"


def reference(book_id: str, chapter: int, verse: int) -> str:
    """A verse as people write it, as in `John 3:16`."""
    return f"{BOOKS[book_id]} {chapter}:{verse}"
