"""Jobs and their progress: server-sent events, WebSockets, and a user's notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response, WebSocket

from ephemera.errors import UnknownJob
from ephemera.patterns.jobs import JobRow
from ephemera.patterns.progress import Listener, Snapshot
from ephemera.web import (
    EVENT_RESPONSES,
    Problem,
    ProgressResponse,
    fanout_websocket,
    last_event_id,
    progress_websocket,
)
from ephemera_services.runtime import problem, problems
from ephemera_services.slides.access import Caller, authenticate
from ephemera_services.slides.account_routes import Reader
from ephemera_services.slides.forms import JobView
from ephemera_services.slides.keys import NOTIFICATIONS, PROGRESS
from ephemera_services.slides.progress_events import final_event, public_error

router = APIRouter(tags=["jobs"])

_Position = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)]
_OrPosition = Annotated[str | None, Query(alias="last_event_id", max_length=100)]


@router.get("/jobs/{job_id}", responses=problems(404, 429))
async def read(job_id: UUID, caller: Reader) -> JobView:
    """A job, from SQL."""
    row = await job_of(caller, job_id)
    return JobView(
        job_id=job_id,
        error=public_error(row.state, row.error),
        slides_completed=await caller.service.workspace.slides_completed(row.id),
        **{name: getattr(row, name) for name in _SHOWN},
    )


_SHOWN = ("kind", "state", "attempts", "result", "created_at", "started_at", "finished_at")


@router.get(
    "/jobs/{job_id}/events", responses={**EVENT_RESPONSES, **problems(404, 429)}, response_class=Response
)
async def events(
    job_id: UUID,
    caller: Reader,
    request: Request,
    header: _Position = None,  # noqa: ARG001 - for the document; `last_event_id` reads both
    query: _OrPosition = None,  # noqa: ARG001
) -> Response:
    """The events of a job as server-sent events: from the start, or after Last-Event-ID."""
    await job_of(caller, job_id)
    listener = _listener(caller, job_id, last_event_id(request.scope))
    return _LimitedStream(caller, listener)


@router.websocket("/jobs/{job_id}/ws")
async def live(websocket: WebSocket, job_id: UUID) -> None:
    """The same over a WebSocket."""

    async def send(caller: Caller) -> None:
        await job_of(caller, job_id)
        listener = _listener(caller, job_id, last_event_id(websocket.scope))
        await progress_websocket(websocket, listener, allowed=caller.is_authorized)

    await _serve(websocket, send)


@router.websocket("/notifications")
async def notifications(websocket: WebSocket) -> None:
    """Notifications of what is ready or has failed, from any process."""

    async def send(caller: Caller) -> None:
        connection = caller.service.store[NOTIFICATIONS].connect(user_id=str(caller.user_id))
        await fanout_websocket(websocket, connection, allowed=caller.is_authorized)

    await _serve(websocket, send)


class _LimitedStream(ProgressResponse):
    """Server-sent events that count as one of the caller's streams; 429 if there are too many."""

    def __init__(self, caller: Caller, listener: Listener[Any]) -> None:
        super().__init__(listener, allowed=caller.is_authorized)
        self._caller = caller

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with self._caller.service.streams.opened(self._caller.user_id):
            await super().__call__(scope, receive, send)


async def _serve(websocket: WebSocket, send: Callable[[Caller], Awaitable[None]]) -> None:
    """Serve an authenticated caller, as one of their streams, or refuse the handshake."""
    try:
        caller = await authenticate(websocket, "viewer")
        with caller.service.streams.opened(caller.user_id):
            await send(caller)
    except Problem as refused:
        await _refuse(websocket, refused)


async def _refuse(websocket: WebSocket, refused: Problem) -> None:
    """Answer a handshake with a problem document."""
    headers = {name.decode(): value.decode() for name, value in refused.headers}
    body = msgspec.json.encode(refused.document)
    response = Response(body, refused.status, headers, "application/problem+json")
    await websocket.send_denial_response(response)


async def job_of(caller: Caller, job_id: UUID) -> JobRow:
    """A job of the caller's organization."""
    try:
        row = await caller.service.workspace.jobs.get(str(job_id))
    except UnknownJob:
        raise problem(404, "There is no such job.") from None
    caller.require_organization(row.arguments["organization_id"])
    return row


def _listener(caller: Caller, job_id: UUID, after: str | None) -> Listener[Any]:
    work = caller.service.workspace

    async def snapshot(job_id: str) -> Snapshot:
        """The state of the job in SQL."""
        row = await work.jobs.get(job_id)
        state = {
            "state": row.state,
            "slides_completed": await work.slides_completed(job_id),
            "last_event": final_event(row) if row.ended else None,
        }
        return Snapshot(state, ended=row.ended)

    return caller.service.store[PROGRESS].listen(job_id=str(job_id), after=after, snapshot=snapshot)
