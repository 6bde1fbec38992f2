"""What is read: content as caches hold it and routes give it."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

Suffix = Literal["witnesses", "words", "xrefs", "commentary"]
SUFFIXES: tuple[Suffix, ...] = get_args(Suffix)
"""What belongs to a passage and is cached by itself."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A verse in all translations there are."""

    id: str
    reference: str
    book_id: str
    chapter: int
    verse: int
    texts: dict[str, str]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One of what belongs to a passage, as it was ingested."""

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


class Quoted(msgspec.Struct, frozen=True, kw_only=True):
    """A passage in one translation, as search and answers give it."""

    id: str
    reference: str
    translation: str
    text: str


class AiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said, and the passages it said it of."""

    text: str
    passages: list[Quoted]
    model: str
    tokens: int
