"""The writers of outlines and slides: a chat model, or sentences of the documents.

`ChatWriter` asks an OpenAI-compatible endpoint for JSON. An invalid response is an error, which the job's
next attempt may fix. The key of the endpoint is only in its header. `Idempotency-Key` lets an endpoint that
supports it answer a repeated request from memory.

Without an endpoint `ExtractiveWriter` invents nothing: it orders and quotes the documents' sentences, and
says so where they have none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import httpx
import msgspec

from ephemera.errors import EphemeraError, JobFailed
from ephemera_services.slides.document_text import sentences
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.library import Passage

_WORD = re.compile(r"[^\W\d_]{4,}")
_MAX_BULLETS = 4
_MAX_BULLET = 180  # characters
_MAX_TITLE = 70
_PARTS = ("Background", "The question", "What is known", "What is open", "Options", "Next steps")
NO_SOURCE = "None of the documents says anything about this."


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What a presentation should be about."""

    topic: str
    audience: str
    language: str
    slides: int


class SlideText(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a slide, and the tokens it cost."""

    title: str
    bullets: list[str]
    notes: str = ""
    sources: list[str] = []
    tokens: int = 0


class Writer(Protocol):
    """Writes presentations. `key` is the same for each attempt of the same step."""

    provider: str
    model: str

    async def outline(self, brief: Brief, passages: Sequence[Passage], *, key: str) -> Outline:
        """Titles for all slides of a brief."""

    async def slide(
        self, brief: Brief, number: int, title: str, passages: Sequence[Passage], *, key: str
    ) -> SlideText:
        """The text of one slide."""


class ExtractiveWriter:
    """Builds outline and bullets from the topic and the documents' own sentences; costs nothing."""

    provider = "extractive"
    model = "extractive-1"

    async def outline(self, brief: Brief, passages: Sequence[Passage], *, key: str) -> Outline:  # noqa: ARG002
        """The topic, a title from each passage, and standard parts if there are too few passages."""
        titles = [_shorten(brief.topic, _MAX_TITLE)]
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
        """Quote the sentences that share most words with the title."""
        del number, key
        about = _words(f"{title} {title} {brief.topic}")
        scored = [
            (sum(about[word] for word in _words(sentence)), -order, sentence, passage.document)
            for order, (sentence, passage) in enumerate(_all_sentences(passages))
        ]
        best = sorted(scored, reverse=True)[:_MAX_BULLETS]
        if not best:
            return SlideText(title=title, bullets=[NO_SOURCE], notes=f"Topic: {brief.topic}")
        best.sort(key=lambda each: -each[1])
        bullets = [_shorten(sentence, _MAX_BULLET) for _, _, sentence, _ in best]
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
    """The beginning of a passage's first sentence, which usually names its subject."""
    return _shorten(sentences(text)[0].rstrip(".!?"), 50)


def _shorten(text: str, length: int) -> str:
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    whole = text[:length].rpartition(" ")[0] or text[: length - 1]
    return whole.rstrip(",;:- ") + "…"


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))


T = TypeVar("T")

_FENCE = re.compile(r"\A\s*```(?:json)?\s*|\s*```\s*\Z")
_MAX_SOURCES = 6_000  # characters of passages in a prompt
_ROLE = "You write presentations. Answer with one JSON object and nothing else."


class ModelFailed(EphemeraError):
    """The model did not answer, or its response could not be used."""


class _Titles(msgspec.Struct):
    title: str
    slides: list[str]


class _Slide(msgspec.Struct):
    bullets: list[str]
    notes: str = ""


class _Message(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Message


class _Usage(msgspec.Struct):
    total_tokens: int = 0


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage = msgspec.field(default_factory=_Usage)


class ChatWriter:
    """Asks a chat model."""

    provider = "openai-compatible"

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout: timedelta = timedelta(seconds=120),
    ) -> None:
        self.model = model
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._url = url.rstrip("/") + "/chat/completions"
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout.total_seconds())

    async def outline(self, brief: Brief, passages: Sequence[Passage], *, key: str) -> Outline:
        """Titles for all slides of a brief."""
        prompt = (
            f"Write the outline of a presentation of {brief.slides} slides on: {brief.topic}\n"
            f"Audience: {brief.audience}\nLanguage: {brief.language}\n{_sources(passages)}\n"
            'Form: {"title": "...", "slides": ["title of slide 1", ...]}'
        )
        found, tokens = await self._ask(prompt, _Titles, key)
        if len(found.slides) < brief.slides:
            raise ModelFailed(f"the model returned {len(found.slides)} titles for {brief.slides} slides")
        return Outline(title=found.title, slides=found.slides[: brief.slides], tokens=tokens)

    async def slide(
        self, brief: Brief, number: int, title: str, passages: Sequence[Passage], *, key: str
    ) -> SlideText:
        """The text of one slide."""
        prompt = (
            f"Write slide {number} of {brief.slides} of a presentation on: {brief.topic}\n"
            f"Title of the slide: {title}\nAudience: {brief.audience}\nLanguage: {brief.language}\n"
            f"{_sources(passages)}\n"
            'Form: {"bullets": ["three to five short points"], "notes": "what the speaker says"}'
        )
        found, tokens = await self._ask(prompt, _Slide, key)
        sources = sorted({passage.document for passage in passages})
        return SlideText(
            title=title, bullets=found.bullets, notes=found.notes, sources=sources, tokens=tokens
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def _ask(self, prompt: str, response_type: type[T], key: str) -> tuple[T, int]:
        messages = [{"role": "system", "content": _ROLE}, {"role": "user", "content": prompt}]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "response_format": {"type": "json_object"},
        }
        try:
            reply = await self._http.post(self._url, json=body, headers={"Idempotency-Key": key})
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise ModelFailed(f"the model did not answer: {type(problem).__name__}") from None
        if reply.status_code in (400, 401, 403, 404):
            raise JobFailed(
                f"The model endpoint refused the request ({reply.status_code}); is it configured correctly?"
            )
        if reply.status_code != httpx.codes.OK:
            raise ModelFailed(f"the model answered {reply.status_code}")
        try:
            answer = msgspec.json.decode(reply.content, type=_Reply)
            text = _FENCE.sub("", answer.choices[0].message.content)
            return msgspec.json.decode(text, type=response_type), answer.usage.total_tokens
        except (msgspec.DecodeError, IndexError) as problem:
            raise ModelFailed(f"the model's response is invalid: {type(problem).__name__}") from None


def _sources(passages: Sequence[Passage]) -> str:
    if not passages:
        return "There are no source documents."
    quoted = "\n".join(f"[{passage.document}] {passage.text}" for passage in passages)
    return f"Use these sources:\n{quoted[:_MAX_SOURCES]}"
