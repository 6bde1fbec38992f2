"""Reading: passages with their parts, chapters, topics, the lexicon, lists of all of them, and search."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from ephemera_services.runtime import problem, problems
from ephemera_services.scripture.access import OPTIONAL_TOKEN, Caller, admit
from ephemera_services.scripture.forms import (
    AfterTopic,
    BookPath,
    Books,
    ChapterPath,
    ChapterView,
    Include,
    LexiconView,
    Limit,
    Offset,
    OptionalBook,
    PassagePath,
    PassageView,
    SearchQuery,
    SearchResults,
    TopicPath,
    Topics,
    TopicView,
    TranslationQuery,
    Translations,
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


@router.get(
    "/translations",
    response_model=Translations,
    responses=problems(401, 429),
    openapi_extra=OPTIONAL_TOKEN,
)
async def translations(request: Request) -> Response:
    """All translations, with their numbers of verses."""
    caller = await admit(request, "passages")
    return _response({"translations": await caller.service.content.translations()}, caller)


@router.get("/books", response_model=Books, responses=_PROBLEMS, openapi_extra=OPTIONAL_TOKEN)
async def books(request: Request, translation: TranslationQuery = "web") -> Response:
    """The books of a translation, and their chapters with their numbers of verses."""
    caller = await admit(request, "passages")
    found = await caller.service.content.contents(translation)
    if found is None:
        raise problem(404, "There is no such translation.")
    return _response({"translation": translation, "books": found.books}, caller)


@router.get("/topics", response_model=Topics, responses=problems(401, 429), openapi_extra=OPTIONAL_TOKEN)
async def topics(request: Request, after: AfterTopic = None, limit: Limit = 20) -> Response:
    """Topics, a page at a time."""
    caller = await admit(request, "passages")
    found = await caller.service.content.topics(after or "", limit + 1)
    page = found[:limit]
    more = page[-1].id if len(found) > limit else None
    return _response({"topics": page, "next": more}, caller)


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
async def search(
    q: SearchQuery,
    request: Request,
    translation: TranslationQuery = "web",
    book: OptionalBook = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> Response:
    """Full-text search, best first; quotes, `or` and `-` work as usual.

    Rare words weigh more than common ones. Without a verse that has all words, those with some are listed.
    """
    caller = await admit(request, "search")
    page = await caller.service.search.find(q, translation, book=book, limit=limit, offset=offset)
    end = offset + len(page.hits)
    shown = {
        "passages": page.hits,
        "total": page.total,
        "matched": page.matched,
        "next": end if page.hits and end < page.total else None,
    }
    return _response(shown, caller)


def _response(content: Any, caller: Caller) -> Response:
    """Encode content without validation: it was validated when it was written."""
    response = Response(_encode(content), media_type="application/json")
    response.raw_headers.extend(caller.headers)
    return response
