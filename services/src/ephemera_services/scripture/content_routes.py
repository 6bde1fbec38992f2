"""Reading: passages with what belongs to them, chapters, topics, the lexicon, and search."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from ephemera_services.runtime import problem, problems
from ephemera_services.scripture.access import ANYBODY, Caller, admitted
from ephemera_services.scripture.forms import (
    BookPath,
    ChapterPath,
    ChapterView,
    Found,
    Include,
    LexiconView,
    PassagePath,
    PassageView,
    SearchQuery,
    TopicPath,
    TopicView,
    TranslationQuery,
    WordPath,
)

router = APIRouter(tags=["content"])
_encode = msgspec.json.Encoder().encode
_READING = problems(401, 404, 429)


@router.get(
    "/passages/{passage_id}",
    response_model=PassageView,
    response_model_exclude_none=True,
    responses=problems(401, 403, 404, 429),
    openapi_extra=ANYBODY,
)
async def passage(passage_id: PassagePath, request: Request, include: Include = None) -> Response:
    """A passage in all translations, and what belongs to it, as far as one's plan has that."""
    caller = await admitted(request, "passages")
    wanted = list(dict.fromkeys(include.split(","))) if include else []
    await asyncio.gather(*map(caller.must_have, wanted))
    content = caller.service.content
    found, given = await asyncio.gather(
        content.passage(passage_id),
        asyncio.gather(*(content.part(passage_id, suffix) for suffix in wanted)),
    )
    if found is None:
        raise problem(404, "There is no such passage.")
    shown = msgspec.structs.asdict(found)
    return _answer(shown | {suffix: part.items for suffix, part in zip(wanted, given, strict=True)}, caller)


@router.get(
    "/chapters/{book}.{chapter}", response_model=ChapterView, responses=_READING, openapi_extra=ANYBODY
)
async def chapter(
    book: BookPath, chapter: ChapterPath, request: Request, translation: TranslationQuery = "web"
) -> Response:
    """A chapter in one translation."""
    caller = await admitted(request, "passages")
    found = await caller.service.content.chapter(book, chapter, translation)
    if found is None:
        raise problem(404, "There is no such chapter in this translation.")
    return _answer(found, caller)


@router.get("/topics/{topic_id}", response_model=TopicView, responses=_READING, openapi_extra=ANYBODY)
async def topic(topic_id: TopicPath, request: Request) -> Response:
    """A topic, and the passages about it."""
    caller = await admitted(request, "passages")
    found = await caller.service.content.topic(topic_id)
    if found is None:
        raise problem(404, "There is no such topic.")
    return _answer(found, caller)


@router.get("/lexicon/{word_id}", response_model=LexiconView, responses=_READING, openapi_extra=ANYBODY)
async def word(word_id: WordPath, request: Request) -> Response:
    """A word of Hebrew or Greek."""
    caller = await admitted(request, "lexicon")
    found = await caller.service.content.word(word_id)
    if found is None:
        raise problem(404, "There is no such word.")
    return _answer(found, caller)


@router.get("/search", response_model=Found, responses=problems(401, 429), openapi_extra=ANYBODY)
async def search(q: SearchQuery, request: Request, translation: TranslationQuery = "web") -> Response:
    """Passages with these words; quotes, `or` and `-` mean what they usually do."""
    caller = await admitted(request, "search")
    return _answer({"passages": await caller.service.search.find(q, translation)}, caller)


def _answer(content: Any, caller: Caller) -> Response:
    """Content as it is: what the cache holds was checked when it was written."""
    response = Response(_encode(content), media_type="application/json")
    response.raw_headers.extend(caller.headers)
    return response
