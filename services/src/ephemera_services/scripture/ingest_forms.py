"""The documents of an ingest, one format per schema: `{"items": [...]}`.

A field that is absent or null is unchanged; a list replaces the old one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ephemera_services.runtime import RequestBody
from ephemera_services.scripture.forms import NO_CONTROL, TOPIC, WORD, PassageId, Translation
from ephemera_services.scripture.records import BOOKS, passage_id

_MAX_ITEMS = 2000  # per document


def _known(book: str) -> str:
    if book not in BOOKS:
        raise ValueError("there is no such book")
    return book


def _line(longest: int, *, least: int = 1) -> object:
    return Field(min_length=least, max_length=longest, pattern=NO_CONTROL)


Book = Annotated[
    str, AfterValidator(_known), Field(json_schema_extra={"enum": list(BOOKS)}, examples=["john"])
]
Text = Annotated[str, _line(2000)]
Line = Annotated[str, _line(200)]
Remark = Annotated[str, _line(200, least=0)]
WordId = Annotated[str, Field(pattern=WORD, examples=["g26"])]
_PARTS = Field(max_length=100)


class Witness(RequestBody):
    """A manuscript that has the passage."""

    siglum: Annotated[str, _line(20)]
    name: Line
    date: Remark = ""
    reading: Annotated[str, _line(2000, least=0)] = ""


class Word(RequestBody):
    """A word of the original."""

    position: Annotated[int, Field(ge=1, le=200, strict=True)]
    text: Line
    gloss: Remark = ""
    word_id: WordId | None = None


class Reference(RequestBody):
    """A cross-reference; the corpus need not have the passage."""

    passage_id: PassageId
    note: Remark = ""


class Comment(RequestBody):
    """A comment on the passage."""

    by: Line
    text: Text


class PassageItem(RequestBody):
    """A verse: its texts by translation, and its parts."""

    book: Book
    chapter: Annotated[int, Field(ge=1, le=150, strict=True)]
    verse: Annotated[int, Field(ge=1, le=176, strict=True)]
    texts: Annotated[dict[Translation, Text], Field(max_length=20, default_factory=dict)]
    witnesses: Annotated[list[Witness], _PARTS] | None = None
    words: Annotated[list[Word], _PARTS] | None = None
    xrefs: Annotated[list[Reference], _PARTS] | None = None
    commentary: Annotated[list[Comment], _PARTS] | None = None

    @property
    def id(self) -> str:
        """The id of the passage."""
        return passage_id(self.book, self.chapter, self.verse)


class TopicItem(RequestBody):
    """A topic; the corpus must have its passages."""

    id: Annotated[str, Field(pattern=TOPIC, examples=["love"])]
    title: Line
    summary: Text
    passages: Annotated[list[PassageId], Field(max_length=500)]


class LexiconItem(RequestBody):
    """An entry of the lexicon."""

    id: WordId
    language: Literal["hebrew", "greek"]
    lemma: Line
    transliteration: Line
    gloss: Line
    definition: Text


class PassageDocument(RequestBody):
    """Passages to ingest."""

    items: Annotated[list[PassageItem], Field(min_length=1, max_length=_MAX_ITEMS)]


class TopicDocument(RequestBody):
    """Topics to ingest."""

    items: Annotated[list[TopicItem], Field(min_length=1, max_length=_MAX_ITEMS)]


class LexiconDocument(RequestBody):
    """Lexicon entries to ingest."""

    items: Annotated[list[LexiconItem], Field(min_length=1, max_length=_MAX_ITEMS)]


Document = PassageDocument | TopicDocument | LexiconDocument
