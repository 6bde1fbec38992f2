"""Jobs, and what is told of them: server-sent events, WebSockets, and a user's notifications."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response, WebSocket

from ephemera.errors import UnknownJob
from ephemera.patterns.jobs import JobRow
from ephemera.patterns.progress import Listener, Snapshot
from ephemera.web._fanout import fanout_socket
from ephemera.web._problems import Problem
from ephemera.web._progress import EVENTS, ProgressResponse, last_event_id, progress_socket
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.access import Caller, admitted
from ephemera_services.slides.account_routes import Reader
from ephemera_services.slides.forms import JobView
from ephemera_services.slides.keys import NOTIFICATIONS, PROGRESS
from ephemera_services.slides.progress_events import final_event, shown_error

router = APIRouter(tags=["jobs"])

_Position = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)]
_OrPosition = Annotated[str | None, Query(alias="last_event_id", max_length=100)]


@router.get("/jobs/{job_id}", responses=problems(404, 429))
async def read(job_id: UUID, caller: Reader) -> JobView:
    """A job, as SQL has it."""
    row = await _job(caller, job_id)
    return JobView(
        job_id=job_id,
        error=shown_error(row.state, row.error),
        slides_completed=await caller.service.work.slides_completed(row.id),
        **{name: getattr(row, name) for name in _SHOWN},
    )


_SHOWN = ("kind", "state", "attempts", "result", "created_at", "started_at", "finished_at")


@router.get("/jobs/{job_id}/events", responses={**EVENTS, **problems(404, 429)}, response_class=Response)
async def events(
    job_id: UUID,
    caller: Reader,
    request: Request,
    header: _Position = None,  # noqa: ARG001 - for the document; `last_event_id` reads both
    query: _OrPosition = None,  # noqa: ARG001
) -> Response:
    """What a job does, as server-sent events: from its beginning, or from an event that one has."""
    await _job(caller, job_id)
    listener = _listener(caller, job_id, last_event_id(request.scope))
    return ProgressResponse(listener, allowed=caller.remains)


@router.websocket("/jobs/{job_id}/ws")
async def live(websocket: WebSocket, job_id: UUID) -> None:
    """The same over a WebSocket."""
    caller = await _admitted(websocket)
    if caller is None:
        return
    try:
        await _job(caller, job_id)
    except Problem as refused:
        await _refuse(websocket, refused)
        return
    listener = _listener(caller, job_id, last_event_id(websocket.scope))
    await progress_socket(websocket, listener, allowed=caller.remains)


@router.websocket("/notifications")
async def notifications(websocket: WebSocket) -> None:
    """What is ready or has failed of a user's, from whichever process."""
    caller = await _admitted(websocket)
    if caller is not None:
        connection = caller.service.store[NOTIFICATIONS].connect(user_id=str(caller.user_id))
        await fanout_socket(websocket, connection, allowed=caller.remains)


async def _admitted(websocket: WebSocket) -> Caller | None:
    try:
        return await admitted(websocket, "viewer")
    except Problem as refused:
        await _refuse(websocket, refused)
        return None


async def _refuse(websocket: WebSocket, refused: Problem) -> None:
    """Answer a handshake with a problem, as a request would be."""
    headers = {name.decode(): value.decode() for name, value in refused.headers}
    body = msgspec.json.encode(refused.document)
    answer = Response(body, refused.status, headers, "application/problem+json")
    await websocket.send_denial_response(answer)


async def _job(caller: Caller, job_id: UUID) -> JobRow:
    """A job of the caller's organization."""
    try:
        row = await caller.service.work.jobs.get(str(job_id))
    except UnknownJob:
        raise problem(404, "There is no such job.") from None
    caller.of(row.arguments["organization_id"])
    return row


def _listener(caller: Caller, job_id: UUID, after: str | None) -> Listener[Any]:
    work = caller.service.work

    async def snapshot(job_id: str) -> Snapshot:
        """How the job stands by SQL."""
        row = await work.jobs.get(job_id)
        state = {
            "state": row.state,
            "slides_completed": await work.slides_completed(job_id),
            "last_event": final_event(row) if row.ended else None,
        }
        return Snapshot(state, ended=row.ended)

    return caller.service.store[PROGRESS].listen(job_id=str(job_id), after=after, snapshot=snapshot)
