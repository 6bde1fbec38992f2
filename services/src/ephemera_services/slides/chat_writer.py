"""A writer behind any endpoint that speaks OpenAI's chat completions: a hosted one, or one's own.

It is asked for JSON, and an answer that is not what was asked for is an error, which the job's next attempt
may mend. The key of the endpoint is in its header and nowhere else. `Idempotency-Key` lets an endpoint that
knows it answer a repeated question from memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from ephemera.errors import EphemeraError, JobFailed
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.library import Passage
from ephemera_services.slides.writer import Brief, SlideText

T = TypeVar("T")

_FENCE = re.compile(r"\A\s*```(?:json)?\s*|\s*```\s*\Z")
_MOST_SOURCES = 6_000  # characters of passages that are sent along
_ROLE = "You write presentations. Answer with one JSON object and nothing else."


class ModelFailed(EphemeraError):
    """The model could not be asked, or its answer could not be used."""


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
    """Writes by asking a model."""

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
        wish = (
            f"Write the outline of a presentation of {brief.slides} slides on: {brief.topic}\n"
            f"Audience: {brief.audience}\nLanguage: {brief.language}\n{_sources(passages)}\n"
            'Form: {"title": "...", "slides": ["title of slide 1", ...]}'
        )
        found, tokens = await self._ask(wish, _Titles, key)
        if len(found.slides) < brief.slides:
            raise ModelFailed(f"the model gave {len(found.slides)} titles for {brief.slides} slides")
        return Outline(title=found.title, slides=found.slides[: brief.slides], tokens=tokens)

    async def slide(
        self, brief: Brief, number: int, title: str, passages: Sequence[Passage], *, key: str
    ) -> SlideText:
        """What one slide says."""
        wish = (
            f"Write slide {number} of {brief.slides} of a presentation on: {brief.topic}\n"
            f"Title of the slide: {title}\nAudience: {brief.audience}\nLanguage: {brief.language}\n"
            f"{_sources(passages)}\n"
            'Form: {"bullets": ["three to five short points"], "notes": "what the speaker says"}'
        )
        found, tokens = await self._ask(wish, _Slide, key)
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

    async def _ask(self, wish: str, form: type[T], key: str) -> tuple[T, int]:
        messages = [{"role": "system", "content": _ROLE}, {"role": "user", "content": wish}]
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
            raise JobFailed(f"The model refuses to be asked ({reply.status_code}); is it configured right?")
        if reply.status_code != httpx.codes.OK:
            raise ModelFailed(f"the model answered {reply.status_code}")
        try:
            answer = msgspec.json.decode(reply.content, type=_Reply)
            text = _FENCE.sub("", answer.choices[0].message.content)
            return msgspec.json.decode(text, type=form), answer.usage.total_tokens
        except (msgspec.DecodeError, IndexError) as problem:
            raise ModelFailed(f"the model's answer is not as asked for: {type(problem).__name__}") from None


def _sources(passages: Sequence[Passage]) -> str:
    if not passages:
        return "There are no source documents."
    quoted = "\n".join(f"[{passage.document}] {passage.text}" for passage in passages)
    return f"Use these sources:\n{quoted[:_MOST_SOURCES]}"
