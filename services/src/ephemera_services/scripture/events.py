"""The events that scripture publishes, besides those about users, which services share.

They outlive deployments, so every new field has a default.
"""

from __future__ import annotations

import msgspec


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a user; only one per `key` is sent."""

    key: str
    to: str
    subject: str
    text: str
    user_id: str = ""
    """Whose choices and browsers count; without it the mail is sent anyway, and nothing is pushed."""
    kind: str = "account"


class PartOf(msgspec.Struct, frozen=True, array_like=True):
    """A part of a passage."""

    passage_id: str
    suffix: str


class ChapterOf(msgspec.Struct, frozen=True, array_like=True):
    """A chapter in one translation."""

    book_id: str
    chapter: int
    translation: str


class ContentChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly what an ingest changed, by cache key."""

    ingest_id: str
    schema: str
    passages: list[str] = []
    parts: list[PartOf] = []
    chapters: list[ChapterOf] = []
    topics: list[str] = []
    lexicon: list[str] = []
    contents: list[str] = []
    """The translations in which verses were added or removed."""

    @property
    def size(self) -> int:
        """The number of changed items."""
        content = len(self.passages) + len(self.parts) + len(self.chapters)
        return content + len(self.contents) + len(self.topics) + len(self.lexicon)
