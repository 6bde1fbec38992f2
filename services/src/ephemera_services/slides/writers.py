"""The writers of outlines and slides: a chat model (`chat_writer`), or sentences of the documents.

Without a model `ExtractiveWriter` invents nothing: it shows the sections of the documents, by their own
sentences, figures and tables, and where there are no documents a skeleton that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ephemera_services.slides.deck import SlideContent
from ephemera_services.slides.deck_plan import Section, plan_deck
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.library import DocumentPassage


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What a presentation should be about."""

    topic: str
    audience: str
    language: str
    slides: int
    """How many there should be; a writer may need a few more or less."""


class WrittenSlide(SlideContent, frozen=True, kw_only=True):
    """A slide, and the tokens it cost."""

    tokens: int = 0


class Sources(Protocol):
    """The documents of a presentation."""

    async def passages(self, query: str, limit: int) -> Sequence[DocumentPassage]:
        """The passages that match a query best."""

    async def sections(self) -> Sequence[Section]:
        """All sections, in order."""


class SlideWriter(Protocol):
    """Writes presentations. `key` is the same for each attempt of the same step."""

    provider: str
    model: str
    is_free: bool
    """Whether it costs nothing, so that caching its outlines would save nothing."""

    async def outline(self, brief: Brief, sources: Sources, *, key: str) -> Outline:
        """Titles for all slides of a brief."""

    async def slide(
        self, brief: Brief, number: int, outline: Outline, sources: Sources, *, key: str
    ) -> WrittenSlide:
        """One slide of an outline; the first has number 1."""


class ExtractiveWriter:
    """Builds presentations from the documents' own sentences and tables."""

    provider = "extractive"
    model = "extractive-2"
    is_free = True

    async def outline(self, brief: Brief, sources: Sources, *, key: str) -> Outline:
        """The titles of the planned slides."""
        del key
        deck = await self._plan(brief, sources)
        return Outline(title=brief.topic, slides=[slide.title for slide in deck])

    async def slide(
        self, brief: Brief, number: int, outline: Outline, sources: Sources, *, key: str
    ) -> WrittenSlide:
        """The planned slide; if a document was deleted in the meantime, its title alone."""
        del key
        deck = await self._plan(brief, sources)
        title = outline.slides[number - 1]
        same_place = [slide for slide in deck[number - 1 : number] if slide.title == title]
        planned = next(iter([*same_place, *(slide for slide in deck if slide.title == title)]), None)
        return WrittenSlide(**msgspec.structs.asdict(planned or SlideContent(title=title, layout="section")))

    async def _plan(self, brief: Brief, sources: Sources) -> list[SlideContent]:
        return plan_deck(brief.topic, brief.slides, brief.language, await sources.sections())
