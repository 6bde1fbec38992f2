"""Reading: passages with their parts, chapters, topics, the lexicon, and search."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from ephemera_services.runtime import problem, problems
from ephemera_services.scripture.access import OPTIONAL_TOKEN, Caller, admit
from ephemera_services.scripture.forms import (
    BookPath,
    ChapterPath,
    ChapterView,
    Include,
    LexiconView,
    PassagePath,
    PassageView,
    SearchQuery,
    SearchResults,
    TopicPath,
    TopicView,
    TranslationQuery,
    WordPath,
)

router = APIRouter(tags=["content"])
_encode = msgspec.json.Encoder().encode
_PROBLEMS = problems(401, 404, 429)


@router.get(
    "/passages/{passage_id}",
    response_model=PassageView,
    response_model_exclude_none=True,
    responses=problems(401, 403, 404, 429),
    openapi_extra=OPTIONAL_TOKEN,
)
async def passage(passage_id: PassagePath, request: Request, include: Include = None) -> Response:
    """A passage in all translations, with the requested parts, if the plan includes them."""
    caller = await admit(request, "passages")
    part_names = list(dict.fromkeys(include.split(","))) if include else []
    await asyncio.gather(*map(caller.require_feature, part_names))
    content = caller.service.content
    found = await content.passage(passage_id)
    if found is None:
        raise problem(404, "There is no such passage.")
    included = await asyncio.gather(*(content.part(passage_id, suffix) for suffix in part_names))
    shown = msgspec.structs.asdict(found)
    return _response(
        shown | {suffix: part.items for suffix, part in zip(part_names, included, strict=True)}, caller
    )


@router.get(
    "/chapters/{book}.{chapter}",
    response_model=ChapterView,
    responses=_PROBLEMS,
    openapi_extra=OPTIONAL_TOKEN,
)
async def chapter(
    book: BookPath, chapter: ChapterPath, request: Request, translation: TranslationQuery = "web"
) -> Response:
    """A chapter in one translation."""
    caller = await admit(request, "passages")
    found = await caller.service.content.chapter(book, chapter, translation)
    if found is None:
        raise problem(404, "There is no such chapter in this translation.")
    return _response(found, caller)


@router.get("/topics/{topic_id}", response_model=TopicView, responses=_PROBLEMS, openapi_extra=OPTIONAL_TOKEN)
async def topic(topic_id: TopicPath, request: Request) -> Response:
    """A topic, and the passages about it."""
    caller = await admit(request, "passages")
    found = await caller.service.content.topic(topic_id)
    if found is None:
        raise problem(404, "There is no such topic.")
    return _response(found, caller)


@router.get(
    "/lexicon/{word_id}", response_model=LexiconView, responses=_PROBLEMS, openapi_extra=OPTIONAL_TOKEN
)
async def word(word_id: WordPath, request: Request) -> Response:
    """A word of Hebrew or Greek."""
    caller = await admit(request, "lexicon")
    found = await caller.service.content.word(word_id)
    if found is None:
        raise problem(404, "There is no such word.")
    return _response(found, caller)


@router.get(
    "/search", response_model=SearchResults, responses=problems(401, 429), openapi_extra=OPTIONAL_TOKEN
)
async def search(q: SearchQuery, request: Request, translation: TranslationQuery = "web") -> Response:
    """Full-text search; quotes, `or` and `-` work as usual."""
    caller = await admit(request, "search")
    return _response({"passages": await caller.service.search.find(q, translation)}, caller)


def _response(content: Any, caller: Caller) -> Response:
    """Encode content without validation: it was validated when it was written."""
    response = Response(_encode(content), media_type="application/json")
    response.raw_headers.extend(caller.headers)
    return response
