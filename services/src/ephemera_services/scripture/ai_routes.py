"""Questions, answered from the cache or by the model, at once or as a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from ephemera.errors import EphemeraError
from ephemera.patterns.semantic_cache import Answer
from ephemera.web import unavailable
from ephemera_services.runtime import cancel_and_wait, problems
from ephemera_services.scripture.access import OPTIONAL_TOKEN, Caller, admit
from ephemera_services.scripture.forms import AnswerView, AskForm, QuotationView
from ephemera_services.scripture.models import ModelFailed
from ephemera_services.scripture.records import AiAnswer

router = APIRouter(tags=["ai"])
logger = logging.getLogger(__name__)
_HEARTBEAT = 15.0  # seconds; keeps proxies from closing a quiet stream
_FAILED = "The model does not answer at the moment; please try again."
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "Server-sent events: `passages`, the sources, and `text`, piece by piece, if the model is asked; "
            "then `answer`, as of `/ai/ask`, or `error`, a problem document"
        ),
        "content": {"text/event-stream": {"schema": {"type": "object"}}},
    }
}


@router.post("/ai/ask", responses=problems(401, 403, 429), openapi_extra=OPTIONAL_TOKEN)
async def ask(form: AskForm, request: Request, response: Response) -> AnswerView:
    """Answer a question from the corpus; 5 per hour on the free plan, failures are not counted."""
    caller = await _admitted(request)
    try:
        found = await caller.service.answers.ask(form.question, form.translation, form.passages)
    except ModelFailed as failed:
        await _refund(caller, failed)
        raise unavailable(_FAILED, retry_after=5) from None
    response.raw_headers.extend(caller.headers)
    return _view(found)


@router.post(
    "/ai/ask/stream",
    response_class=StreamingResponse,
    responses={**problems(401, 403, 429), **_STREAM},
    openapi_extra=OPTIONAL_TOKEN,
)
async def ask_as_stream(form: AskForm, request: Request) -> StreamingResponse:
    """Answer a question as `/ai/ask` does, and send the answer while the model writes it."""
    caller = await _admitted(request)
    response = StreamingResponse(
        _events(form, caller),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )
    response.raw_headers.extend(caller.headers)
    return response


async def _admitted(request: Request) -> Caller:
    caller = await admit(request, "ai")
    await caller.require_feature("ai")
    return caller


async def _events(form: AskForm, caller: Caller) -> AsyncIterator[bytes]:
    """The events of an answer; a client that leaves ends the request to the model."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def answer() -> None:
        try:
            found = await caller.service.answers.ask(
                form.question,
                form.translation,
                form.passages,
                on_passages=lambda found: queue.put_nowait(_event("passages", {"passages": found})),
                on_text=lambda piece: queue.put_nowait(_event("text", {"text": piece})),
            )
            queue.put_nowait(_event("answer", _view(found).model_dump()))
        except EphemeraError as failed:
            await _refund(caller, failed)
            queue.put_nowait(
                _event("error", {"title": "Service Unavailable", "status": 503, "detail": _FAILED})
            )
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(answer(), name="scripture-answer")
    try:
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), _HEARTBEAT)
            except TimeoutError:
                event = b": waiting\n\n"
            if event is None:
                break
            yield event
        await task
    finally:
        await cancel_and_wait([task])


def _event(name: str, data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


async def _refund(caller: Caller, failed: EphemeraError) -> None:
    logger.warning("the model failed", extra={"problem": str(failed)})
    if caller.decision is not None:
        await caller.service.gate.refund(caller.decision)


def _view(found: Answer[AiAnswer]) -> AnswerView:
    return AnswerView(
        id=found.id,
        answer=found.value.text,
        passages=[QuotationView.model_validate(each, from_attributes=True) for each in found.value.passages],
        model=found.value.model,
        how=found.origin,
        similarity=found.similarity,
    )
