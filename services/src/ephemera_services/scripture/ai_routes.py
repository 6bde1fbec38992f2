"""Questions, answered from the cache or by the model."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request, Response

from ephemera.web import unavailable
from ephemera_services.runtime import problems
from ephemera_services.scripture.access import OPTIONAL_TOKEN, admit
from ephemera_services.scripture.forms import AnswerView, AskForm, QuotationView
from ephemera_services.scripture.models import ModelFailed

router = APIRouter(tags=["ai"])
logger = logging.getLogger(__name__)


@router.post("/ai/ask", responses=problems(401, 403, 429), openapi_extra=OPTIONAL_TOKEN)
async def ask(form: AskForm, request: Request, response: Response) -> AnswerView:
    """Answer a question from the corpus; 5 per hour on the free plan, failures are not counted."""
    caller = await admit(request, "ai")
    await caller.require_feature("ai")
    service = caller.service
    try:
        found = await service.answers.ask(form.question, form.translation, form.passages)
    except ModelFailed as failed:
        logger.warning("the model failed", extra={"problem": str(failed)})
        if caller.decision is not None:
            await service.gate.refund(caller.decision)
        raise unavailable(
            "The model does not answer at the moment; please try again.", retry_after=5
        ) from None
    response.raw_headers.extend(caller.headers)
    return AnswerView(
        id=found.id,
        answer=found.value.text,
        passages=[QuotationView.model_validate(each, from_attributes=True) for each in found.value.passages],
        model=found.value.model,
        how=found.origin,
        similarity=found.similarity,
    )
