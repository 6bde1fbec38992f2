"""The ingest routes: one per schema, so that each has its documented format."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from ephemera_services.runtime import problems
from ephemera_services.scripture.access import Bearer, Caller
from ephemera_services.scripture.forms import ChapterName, Ingested, PartName
from ephemera_services.scripture.ingest_forms import (
    Document,
    LexiconDocument,
    PassageDocument,
    TopicDocument,
)

router = APIRouter(prefix="/ingest", tags=["ingest"])
Admin = Annotated[Caller, Depends(Bearer(admin=True))]
_PROBLEMS = problems(403, 409)


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


async def _ingest(schema: str, document: Document, caller: Caller) -> Ingested:
    change, fence, _ = await caller.service.ingest.ingest(schema, document)
    return Ingested(
        ingest_id=change.ingest_id,
        fence=fence,
        passages=change.passages,
        parts=[PartName.model_validate(each, from_attributes=True) for each in change.parts],
        chapters=[ChapterName.model_validate(each, from_attributes=True) for each in change.chapters],
        topics=change.topics,
        lexicon=change.lexicon,
    )
