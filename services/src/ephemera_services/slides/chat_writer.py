"""Asks an OpenAI-compatible endpoint for outlines and slides, and copes with the habits of models.

The first JSON object of a response counts, whatever is written around it. A response that cannot be used is
sent back once with the reason; the next attempt of the job may do better. Titles and bullets may be objects,
and an outline may be one slide too short. Tokens are counted for every response, even for those of no use.

The key of the endpoint is only in its header. `Idempotency-Key` lets an endpoint that supports it answer a
repeated request from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from ephemera.errors import EphemeraError, JobFailed
from ephemera_services.slides.chart_data import chart_data
from ephemera_services.slides.deck import Layout
from ephemera_services.slides.frame_words import frame_words
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.library import DocumentPassage
from ephemera_services.slides.model_responses import (
    first_json,
    read_outline,
    read_slide,
    read_title_slide,
)
from ephemera_services.slides.writers import Brief, Sources, WrittenSlide

T = TypeVar("T")

_ROLE = "You write presentations. Answer with one JSON object and nothing else."
_OUTLINE_FORM = '{"title": "...", "slides": ["title of slide 1", ...]}'
_SLIDE_FORM = (
    '{"bullets": ["three to five points of at most 15 words"], "notes": "what the speaker says", '
    '"table": null or {"header": ["..."], "rows": [["..."]]} if figures are best shown as a table}'
)
_TITLE_FORM = '{"subtitle": "one line of at most 12 words below the title", "notes": "what the speaker says"}'
_PASSAGES_PER_SLIDE = 4
_MAX_SOURCES = 6_000  # characters of passages in a prompt
_FRAMED = 4  # slides from which the first is a title and the last a summary
_WITH_AGENDA = 6  # slides from which the second is an agenda
_MAX_DELAY = timedelta(minutes=15)


class ModelFailed(EphemeraError):
    """The model did not answer, or its response could not be used."""

    def __init__(self, message: str, tokens: int = 0, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        """What the failed calls cost."""
        self.retry_after = retry_after
        """When the endpoint asks to be called again."""


class ModelRefused(JobFailed):
    """The endpoint refused the request for good: its configuration is wrong."""

    def __init__(self, status: int, tokens: int) -> None:
        super().__init__(f"The model endpoint refused the request ({status}); is it configured correctly?")
        self.tokens = tokens
        """What the calls cost."""


class _Usage(msgspec.Struct):
    total_tokens: int = 0


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


class ChatWriter:
    """Asks a chat model."""

    provider = "openai-compatible"
    is_free = False

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
        self._asks_for_json = True

    async def outline(self, brief: Brief, sources: Sources, *, key: str) -> Outline:
        """Titles for all slides of a brief, or for one less."""
        has_agenda = brief.slides >= _WITH_AGENDA
        wanted = brief.slides - has_agenda
        framed = " The first is the title slide, the last a summary." if brief.slides >= _FRAMED else ""
        prompt = (
            f"Write the outline of a presentation of {wanted} slides on: {brief.topic}\n"
            f"Audience: {brief.audience}\nLanguage: {brief.language}\n"
            f"{_quoted(await sources.passages(brief.topic, brief.slides))}\n"
            f"Form: {_OUTLINE_FORM}, with {wanted} titles.{framed}"
        )
        (title, titles), tokens = await self._ask(prompt, lambda found: read_outline(found, wanted), key)
        if has_agenda:
            titles.insert(1, frame_words(brief.language).agenda)
        return Outline(title=title or brief.topic, slides=titles, tokens=tokens)

    async def slide(
        self, brief: Brief, number: int, outline: Outline, sources: Sources, *, key: str
    ) -> WrittenSlide:
        """One slide, written with the whole outline in view; an agenda is the outline."""
        title, count = outline.slides[number - 1], len(outline.slides)
        if number == 2 and title == frame_words(brief.language).agenda:
            return WrittenSlide(title=title, layout="agenda", bullets=outline.slides[2:])
        is_title = count >= _FRAMED and number == 1
        passages = await sources.passages(f"{title} {brief.topic}", _PASSAGES_PER_SLIDE)
        titles = "\n".join(f"{at}. {each}" for at, each in enumerate(outline.slides, 1))
        prompt = (
            f"Write slide {number} of {count} of a presentation on: {brief.topic}\n"
            f"Title of the slide: {title}\nAudience: {brief.audience}\nLanguage: {brief.language}\n"
            f"The outline, whose other slides say the rest:\n{titles}\n"
            f"{_quoted(passages)}\nForm: {_TITLE_FORM if is_title else _SLIDE_FORM}"
        )
        read = read_title_slide if is_title else read_slide
        slide, tokens = await self._ask(prompt, lambda found: read(found, title), key)
        documents = sorted({passage.document for passage in passages})
        layout = "title" if is_title else _layout(slide, number, count)
        return msgspec.structs.replace(slide, layout=layout, sources=documents, tokens=tokens)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def _ask(self, prompt: str, parse: Callable[[Any], T], key: str) -> tuple[T, int]:
        """The parsed response and its tokens; one that cannot be used is sent back once."""
        messages = [{"role": "system", "content": _ROLE}, {"role": "user", "content": prompt}]
        tokens, reason = 0, ""
        for attempt in (key, f"{key}:repair"):
            text, used = await self._complete(messages, attempt, tokens)
            tokens += used
            try:
                return parse(first_json(text)), tokens
            except ValueError as problem:
                reason = str(problem)
            again = f"This cannot be used: {reason}. Answer again, with one JSON object of the form."
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": again}]
        raise ModelFailed(f"the model's response is invalid, even after a second question: {reason}", tokens)

    async def _complete(self, messages: list[dict[str, str]], key: str, spent: int) -> tuple[str, int]:
        """The text of a response, and its tokens."""
        reply, used = await self._post(messages, key, spent)
        if reply.status_code == httpx.codes.BAD_REQUEST and self._asks_for_json:
            self._asks_for_json = False
            reply, more = await self._post(messages, f"{key}:plain", spent + used)
            used += more
            self._asks_for_json = reply.status_code == httpx.codes.BAD_REQUEST  # the field is not the reason
        if reply.status_code in (400, 401, 403, 404):
            raise ModelRefused(reply.status_code, spent + used)
        if reply.status_code != httpx.codes.OK:
            delay = _retry_after(reply.headers.get("retry-after"))
            raise ModelFailed(f"the model answered {reply.status_code}", spent + used, delay)
        return _content(reply), used

    async def _post(self, messages: list[dict[str, str]], key: str, spent: int) -> tuple[httpx.Response, int]:
        """A response of the endpoint, and its tokens."""
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if self._asks_for_json:
            body["response_format"] = {"type": "json_object"}
        try:
            reply = await self._http.post(self._url, json=body, headers={"Idempotency-Key": key})
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise ModelFailed(f"the model did not answer: {type(problem).__name__}", spent) from None
        usage = _decoded(reply).usage
        return reply, 0 if usage is None else max(usage.total_tokens, 0)


def _decoded(reply: httpx.Response) -> _Reply:
    try:
        return msgspec.json.decode(reply.content, type=_Reply)
    except msgspec.DecodeError:
        return _Reply()


def _content(reply: httpx.Response) -> str:
    choices = _decoded(reply).choices
    return choices[0].message.content or "" if choices else ""


def _layout(slide: WrittenSlide, number: int, count: int) -> Layout:
    if slide.table is not None:
        return "table" if chart_data(slide.table) is None else "chart"
    return "closing" if count >= _FRAMED and number == count else "bullets"


def _retry_after(value: str | None) -> timedelta | None:
    """The delay of a Retry-After header, in seconds or as a date."""
    if value is None:
        return None
    try:
        delay = timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        try:
            delay = parsedate_to_datetime(value) - datetime.now(UTC)
        except (ValueError, TypeError):
            return None
    return min(max(delay, timedelta(0)), _MAX_DELAY)


def _quoted(passages: Sequence[DocumentPassage]) -> str:
    if not passages:
        return "There are no source documents."
    quoted = "\n".join(f"[{passage.document}] {passage.text}" for passage in passages)
    return f"Use these sources:\n{quoted[:_MAX_SOURCES]}"
