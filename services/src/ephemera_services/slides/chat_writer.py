"""Asks an OpenAI-compatible endpoint for outlines and slides, and copes with the habits of models.

The first JSON object of a response counts, whatever is written around it. A response that cannot be used is
sent back once with the reason; the next attempt of the job may do better. Titles and bullets may be objects,
and an outline may be one slide too short. Tokens are counted for every response, even for those of no use.

The key of the endpoint is only in its header. `Idempotency-Key` lets an endpoint that supports it answer a
repeated request from memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from ephemera.errors import EphemeraError, JobFailed
from ephemera_services.slides.chart_data import chart_data
from ephemera_services.slides.deck import Layout, Table, printable, table_of
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.library import DocumentPassage
from ephemera_services.slides.writers import Brief, Sources, WrittenSlide

T = TypeVar("T")

_ROLE = "You write presentations. Answer with one JSON object and nothing else."
_OUTLINE_FORM = '{"title": "...", "slides": ["title of slide 1", ...]}'
_SLIDE_FORM = (
    '{"bullets": ["three to five points of at most 15 words"], "notes": "what the speaker says", '
    '"table": null or {"header": ["..."], "rows": [["..."]]} if figures are best shown as a table}'
)
_PASSAGES_PER_SLIDE = 4
_MAX_SOURCES = 6_000  # characters of passages in a prompt
_MAX_BULLETS = 6
_MAX_LINE = 500  # characters
_MAX_NOTES = 4_000
_FRAMED = 4  # slides from which the first is a title and the last a summary
_MAX_RESPONSE = 100_000  # characters
_MAX_BRACES = 100  # at which an object may begin
_MAX_DELAY = timedelta(minutes=15)
_TEXT_KEYS = ("title", "heading", "text", "point", "bullet", "name", "content")
_MARKER = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+")


class ModelFailed(EphemeraError):
    """The model did not answer, or its response could not be used."""

    def __init__(self, message: str, tokens: int = 0, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        """What the failed calls cost."""
        self.retry_after = retry_after
        """When the endpoint asks to be called again."""


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

    async def outline(self, brief: Brief, sources: Sources, *, key: str) -> Outline:
        """Titles for all slides of a brief, or for one less."""
        framed = " The first is the title slide, the last a summary." if brief.slides >= _FRAMED else ""
        prompt = (
            f"Write the outline of a presentation of {brief.slides} slides on: {brief.topic}\n"
            f"Audience: {brief.audience}\nLanguage: {brief.language}\n"
            f"{_quoted(await sources.passages(brief.topic, brief.slides))}\n"
            f"Form: {_OUTLINE_FORM}, with {brief.slides} titles.{framed}"
        )
        (title, titles), tokens = await self._ask(prompt, lambda found: _outline(found, brief), key)
        return Outline(title=title or brief.topic, slides=titles, tokens=tokens)

    async def slide(
        self, brief: Brief, number: int, outline: Outline, sources: Sources, *, key: str
    ) -> WrittenSlide:
        """One slide, written with the whole outline in view."""
        title, count = outline.slides[number - 1], len(outline.slides)
        passages = await sources.passages(f"{title} {brief.topic}", _PASSAGES_PER_SLIDE)
        titles = "\n".join(f"{at}. {each}" for at, each in enumerate(outline.slides, 1))
        prompt = (
            f"Write slide {number} of {count} of a presentation on: {brief.topic}\n"
            f"Title of the slide: {title}\nAudience: {brief.audience}\nLanguage: {brief.language}\n"
            f"The outline, whose other slides say the rest:\n{titles}\n"
            f"{_quoted(passages)}\nForm: {_SLIDE_FORM}"
        )
        slide, tokens = await self._ask(prompt, lambda found: _slide(found, title), key)
        documents = sorted({passage.document for passage in passages})
        layout = _layout(slide, number, count)
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
                return parse(first_object(text)), tokens
            except ValueError as problem:
                reason = str(problem)
            again = f"This cannot be used: {reason}. Answer again, with one JSON object of the form."
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": again}]
        raise ModelFailed(f"the model's response is invalid, even after a second question: {reason}", tokens)

    async def _complete(self, messages: list[dict[str, str]], key: str, spent: int) -> tuple[str, int]:
        """The text of a response, and its tokens."""
        body = {"model": self.model, "messages": messages, "response_format": {"type": "json_object"}}
        try:
            reply = await self._http.post(self._url, json=body, headers={"Idempotency-Key": key})
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise ModelFailed(f"the model did not answer: {type(problem).__name__}", spent) from None
        try:
            answer = msgspec.json.decode(reply.content, type=_Reply)
        except msgspec.DecodeError:
            answer = _Reply()
        used = 0 if answer.usage is None else max(answer.usage.total_tokens, 0)
        if reply.status_code in (400, 401, 403, 404):
            raise JobFailed(
                f"The model endpoint refused the request ({reply.status_code}); is it configured correctly?"
            )
        if reply.status_code != httpx.codes.OK:
            delay = _retry_after(reply.headers.get("retry-after"))
            raise ModelFailed(f"the model answered {reply.status_code}", spent + used, delay)
        return (answer.choices[0].message.content or "" if answer.choices else ""), used


def first_object(text: str) -> dict[str, Any]:
    """The first JSON object in a text; ValueError if there is none."""
    decoder = json.JSONDecoder()
    for brace in islice(re.finditer(r"{", text[:_MAX_RESPONSE]), _MAX_BRACES):
        try:
            found, _ = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        if found:
            return dict(found)
    raise ValueError("there is no complete JSON object in it")


def _outline(found: dict[str, Any], brief: Brief) -> tuple[str, list[str]]:
    listed = found.get("slides", found.get("outline", found.get("titles")))
    if not isinstance(listed, list):
        raise ValueError("'slides' is not a list of titles")  # noqa: TRY004 - it is the model's
    titles = [title for title in map(_line, listed) if title][: brief.slides]
    if len(titles) < max(brief.slides - 1, 1):
        raise ValueError(f"'slides' has {len(titles)} titles, not {brief.slides}")
    return _line(found.get("title", "")), titles


def _slide(found: dict[str, Any], title: str) -> WrittenSlide:
    listed = found.get("bullets", found.get("points", found.get("content")))
    if isinstance(listed, str):
        listed = listed.splitlines()
    if not isinstance(listed, list):
        raise ValueError("'bullets' is not a list of texts")  # noqa: TRY004
    bullets = [bullet for bullet in map(_line, listed) if bullet][:_MAX_BULLETS]
    table = _table(found.get("table"))
    if not bullets and table is None:
        raise ValueError("'bullets' has no text")
    notes = found.get("notes", "")
    shown = _printable(notes, _MAX_NOTES) if isinstance(notes, str) else ""
    return WrittenSlide(title=title, bullets=bullets, notes=shown, table=table)


def _table(found: Any) -> Table | None:
    """The table, if it has rows; otherwise None."""
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list):
        return None
    rows = [row for row in (found.get("header"), *found["rows"]) if isinstance(row, list)]
    return table_of([[_printable(str(cell), _MAX_LINE) for cell in row] for row in rows])


def _layout(slide: WrittenSlide, number: int, count: int) -> Layout:
    if slide.table is not None:
        return "table" if chart_data(slide.table) is None else "chart"
    if count >= _FRAMED and number == 1:
        return "title"
    return "closing" if count >= _FRAMED and number == count else "bullets"


def _line(value: Any) -> str:
    """A title or a bullet: a text, or an object with one."""
    if isinstance(value, dict):
        value = next((value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)), "")
    if not isinstance(value, str):
        return ""
    return _MARKER.sub("", _printable(" ".join(value.split()), _MAX_LINE), count=1).strip()


def _printable(text: str, length: int) -> str:
    return printable(text)[:length].strip()


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
