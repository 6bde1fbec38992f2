"""The documents that an ingest takes, one form for each schema: `{"items": [...]}`.

What is absent, or null, stays as it is; a list that is given replaces the one there was.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ephemera_services.scripture.books import BOOKS, passage_id
from ephemera_services.scripture.forms import NO_CONTROL, TOPIC, WORD, PassageId, Taken, Translation

_MOST = 2000  # items of one document


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


class Witness(Taken):
    """A manuscript that has the passage."""

    siglum: Annotated[str, _line(20)]
    name: Line
    date: Remark = ""
    reading: Annotated[str, _line(2000, least=0)] = ""


class Word(Taken):
    """A word of the original."""

    position: Annotated[int, Field(ge=1, le=200, strict=True)]
    text: Line
    gloss: Remark = ""
    word_id: WordId | None = None


class Reference(Taken):
    """Another passage that this one calls to mind; the corpus need not have it."""

    passage_id: PassageId
    note: Remark = ""


class Comment(Taken):
    """What somebody says of the passage."""

    by: Line
    text: Text


class PassageItem(Taken):
    """A verse: its texts by translation, and what belongs to it."""

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
        """Of the passage."""
        return passage_id(self.book, self.chapter, self.verse)


class TopicItem(Taken):
    """A topic; the corpus must have its passages."""

    id: Annotated[str, Field(pattern=TOPIC, examples=["love"])]
    title: Line
    summary: Text
    passages: Annotated[list[PassageId], Field(max_length=500)]


class LexiconItem(Taken):
    """An entry of the lexicon."""

    id: WordId
    language: Literal["hebrew", "greek"]
    lemma: Line
    transliteration: Line
    gloss: Line
    definition: Text


class PassageDocument(Taken):
    """Passages to take in."""

    items: Annotated[list[PassageItem], Field(min_length=1, max_length=_MOST)]


class TopicDocument(Taken):
    """Topics to take in."""

    items: Annotated[list[TopicItem], Field(min_length=1, max_length=_MOST)]


class LexiconDocument(Taken):
    """Entries of the lexicon to take in."""

    items: Annotated[list[LexiconItem], Field(min_length=1, max_length=_MOST)]


Document = PassageDocument | TopicDocument | LexiconDocument
