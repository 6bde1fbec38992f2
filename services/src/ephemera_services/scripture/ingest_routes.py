"""The ingest routes: one per schema, so that each has its documented format; and those that delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from ephemera_services.runtime import problem, problems
from ephemera_services.scripture.access import Bearer, Caller
from ephemera_services.scripture.events import ChapterOf
from ephemera_services.scripture.forms import (
    BookQuery,
    ChapterName,
    ChapterQuery,
    Ingested,
    OptionalTranslation,
    PartName,
    PassagePath,
    TopicPath,
    TranslationPath,
    TranslationQuery,
    WordPath,
)
from ephemera_services.scripture.ingest import Written
from ephemera_services.scripture.ingest_forms import (
    Document,
    LexiconDocument,
    PassageDocument,
    TopicDocument,
)

router = APIRouter(prefix="/ingest", tags=["ingest"])
Admin = Annotated[Caller, Depends(Bearer(admin=True))]
_PROBLEMS = problems(403, 409)
_GONE = problems(403, 404, 409)


@router.post("/passages", responses=_PROBLEMS)
async def ingest_passages(document: PassageDocument, caller: Admin) -> Ingested:
    """Ingest passages; when this answers, no reader sees the old content."""
    return await _ingest("passages", document, caller)


@router.post("/topics", responses=_PROBLEMS)
async def ingest_topics(document: TopicDocument, caller: Admin) -> Ingested:
    """Ingest topics; their passages must exist."""
    return await _ingest("topics", document, caller)


@router.post("/lexicon", responses=_PROBLEMS)
async def ingest_lexicon(document: LexiconDocument, caller: Admin) -> Ingested:
    """Ingest lexicon entries."""
    return await _ingest("lexicon", document, caller)


@router.put("/chapters", responses=_PROBLEMS)
async def replace_chapter(
    book: BookQuery,
    chapter: ChapterQuery,
    translation: TranslationQuery,
    document: PassageDocument,
    caller: Admin,
) -> Ingested:
    """Replace a chapter in one translation: verses that are not sent are deleted from it."""
    named = ChapterOf(book, chapter, translation)
    return _view(await caller.service.ingest.replace_chapter(named, document))


@router.delete("/passages/{passage_id}", responses=_GONE)
async def delete_passage(
    passage_id: PassagePath, caller: Admin, translation: OptionalTranslation = None
) -> Ingested:
    """Delete a passage, or its text in one translation; 409 if a topic names it."""
    return _deleted(await caller.service.ingest.delete_passage(passage_id, translation))


@router.delete("/translations/{translation}", responses=_GONE)
async def delete_translation(translation: TranslationPath, caller: Admin) -> Ingested:
    """Delete a translation, and passages that have no other text; 409 if a topic names one of these."""
    return _deleted(await caller.service.ingest.delete_translation(translation))


@router.delete("/topics/{topic_id}", responses=_GONE)
async def delete_topic(topic_id: TopicPath, caller: Admin) -> Ingested:
    """Delete a topic."""
    return _deleted(await caller.service.ingest.delete_whole("topics", topic_id))


@router.delete("/lexicon/{word_id}", responses=_GONE)
async def delete_word(word_id: WordPath, caller: Admin) -> Ingested:
    """Delete an entry of the lexicon."""
    return _deleted(await caller.service.ingest.delete_whole("lexicon", word_id))


async def _ingest(schema: str, document: Document, caller: Caller) -> Ingested:
    return _view(await caller.service.ingest.ingest(schema, document))


def _deleted(written: Written) -> Ingested:
    if written.number is None:
        raise problem(404, "The corpus does not have this.")
    return _view(written)


def _view(written: Written) -> Ingested:
    change = written.change
    return Ingested(
        ingest_id=change.ingest_id,
        fence=written.fence,
        passages=change.passages,
        parts=[PartName.model_validate(each, from_attributes=True) for each in change.parts],
        chapters=[ChapterName.model_validate(each, from_attributes=True) for each in change.chapters],
        topics=change.topics,
        lexicon=change.lexicon,
    )
