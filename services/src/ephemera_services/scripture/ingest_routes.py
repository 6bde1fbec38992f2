"""Taking content in: a route for each schema, so that each has its documented form."""

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
_OWN = problems(403, 409)


@router.post("/passages", responses=_OWN)
async def ingest_passages(document: PassageDocument, caller: Admin) -> Ingested:
    """Take passages in; when this answers, no reader sees what was there before."""
    return await _taken_in("passages", document, caller)


@router.post("/topics", responses=_OWN)
async def ingest_topics(document: TopicDocument, caller: Admin) -> Ingested:
    """Take topics in; their passages must be there."""
    return await _taken_in("topics", document, caller)


@router.post("/lexicon", responses=_OWN)
async def ingest_lexicon(document: LexiconDocument, caller: Admin) -> Ingested:
    """Take entries of the lexicon in."""
    return await _taken_in("lexicon", document, caller)


async def _taken_in(schema: str, document: Document, caller: Caller) -> Ingested:
    change, fence, _ = await caller.service.ingest.take_in(schema, document)
    return Ingested(
        ingest_id=change.ingest_id,
        fence=fence,
        passages=change.passages,
        parts=[PartName.model_validate(each, from_attributes=True) for each in change.parts],
        chapters=[ChapterName.model_validate(each, from_attributes=True) for each in change.chapters],
        topics=change.topics,
        lexicon=change.lexicon,
    )
