"""The model as a port: who writes outlines and slides, and what that cost.

`ChatWriter` (in `chat_writer`) asks an endpoint that speaks OpenAI's chat completions. Without one there is
`ExtractiveWriter`, which is no model and does not pretend to be: it orders what the documents say, quotes
their sentences, and says so where they say nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from ephemera_services.slides.chunks import sentences
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.library import Passage

_WORD = re.compile(r"[^\W\d_]{4,}")
_MOST_BULLETS = 4
_LONGEST_BULLET = 180  # characters
_LONGEST_TITLE = 70
_PARTS = ("Background", "The question", "What is known", "What is open", "Options", "Next steps")
NO_SOURCE = "No document was given that says anything about this."


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What a presentation shall be about."""

    topic: str
    audience: str
    language: str
    slides: int


class SlideText(msgspec.Struct, frozen=True, kw_only=True):
    """What a slide says, and the tokens it took."""

    title: str
    bullets: list[str]
    notes: str = ""
    sources: list[str] = []
    tokens: int = 0


class Writer(Protocol):
    """Writes presentations. `key` is the same for each attempt at the same thing."""

    provider: str
    model: str

    async def outline(self, brief: Brief, passages: Sequence[Passage], *, key: str) -> Outline:
        """Titles for all slides of a brief."""

    async def slide(
        self, brief: Brief, number: int, title: str, passages: Sequence[Passage], *, key: str
    ) -> SlideText:
        """What one slide says."""


class ExtractiveWriter:
    """Builds outline and bullets from the topic and the documents' own sentences; costs nothing."""

    provider = "extractive"
    model = "extractive-1"

    async def outline(self, brief: Brief, passages: Sequence[Passage], *, key: str) -> Outline:  # noqa: ARG002
        """The topic, a title from each passage, and the usual parts where passages do not suffice."""
        titles = [_shortened(brief.topic, _LONGEST_TITLE)]
        for passage in passages:
            title = _headline(passage.text)
            if title.lower() not in {each.lower() for each in titles}:
                titles.append(title)
        for number in range(brief.slides):
            part = _PARTS[number % len(_PARTS)]
            again = number // len(_PARTS)
            titles.append(f"{part} ({again + 1})" if again else part)
        return Outline(title=titles[0], slides=titles[: brief.slides])

    async def slide(
        self, brief: Brief, number: int, title: str, passages: Sequence[Passage], *, key: str
    ) -> SlideText:
        """Sentences of the passages that have most in common with the title, word for word."""
        del number, key
        about = _words(f"{title} {title} {brief.topic}")
        scored = [
            (sum(about[word] for word in _words(sentence)), -order, sentence, passage.document)
            for order, (sentence, passage) in enumerate(_all_sentences(passages))
        ]
        best = sorted(scored, reverse=True)[:_MOST_BULLETS]
        if not best:
            return SlideText(title=title, bullets=[NO_SOURCE], notes=f"Topic: {brief.topic}")
        best.sort(key=lambda each: -each[1])
        bullets = [_shortened(sentence, _LONGEST_BULLET) for _, _, sentence, _ in best]
        sources = sorted({document for *_, document in best})
        return SlideText(
            title=title, bullets=bullets, notes=f"Quoted from {', '.join(sources)}", sources=sources
        )


def _all_sentences(passages: Iterable[Passage]) -> Iterable[tuple[str, Passage]]:
    seen = set()
    for passage in passages:
        for sentence in sentences(passage.text):
            if sentence not in seen and len(sentence) > 20:
                seen.add(sentence)
                yield sentence, passage


def _headline(text: str) -> str:
    """The beginning of a passage's first sentence, which is most often what it is about."""
    return _shortened(sentences(text)[0].rstrip(".!?"), 50)


def _shortened(text: str, length: int) -> str:
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    whole = text[:length].rpartition(" ")[0] or text[: length - 1]
    return whole.rstrip(",;:- ") + "…"


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))
