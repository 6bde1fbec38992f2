"""Administration: scores, events, results, advertisements, monitoring, and a WebSocket with updates."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Response, WebSocket

from ephemera.errors import LoadFailed, StillLoading
from ephemera.web import Problem, RequestSession, fanout_websocket, unavailable
from ephemera_services.league.access import STAFF, Admin, Service, Staff
from ephemera_services.league.forms import (
    Ad,
    Event,
    Finalized,
    FinalScore,
    LiveScore,
    MatchId,
    PostedAd,
    Warmed,
)
from ephemera_services.league.keys import ADMIN_STATS, Session
from ephemera_services.league.service import League
from ephemera_services.league.tables import ads
from ephemera_services.runtime import problem, problems

router = APIRouter(tags=["admin"], responses=problems(403, 429))


@router.put("/api/admin/matches/{match_id}/score", status_code=204, responses=problems(404, 409))
async def score(match_id: MatchId, form: LiveScore, admin: Admin, service: Service) -> None:
    """Set the score of a live match; the first one starts it, from 30 minutes before its kick-off on."""
    await service.matches.set_score(
        match_id, form.minute, form.home_goals, form.away_goals, by=admin, override=form.override
    )


@router.post("/api/admin/matches/{match_id}/events", status_code=204, responses=problems(404, 409))
async def add_event(match_id: MatchId, form: Event, admin: Admin, service: Service) -> None:
    """Record a goal or a card, without changing the score."""
    await service.matches.add_event(match_id, form.model_dump(), admin)


@router.post("/api/admin/matches/{match_id}/finalize", responses=problems(404, 409))
async def finalize(match_id: MatchId, form: FinalScore, caller: Staff, service: Service) -> Finalized:
    """Finalize a result: all pages that show it change atomically.

    Idempotent. Before its kick-off only with `override`. An administrator can also correct a final result; a
    helper finalizes a match that they control, after it has ended, with its recorded score.
    """
    changed = await service.matches.finalize(
        match_id, form.home_goals, form.away_goals, by=caller, override=form.override
    )
    service.after_result()
    return Finalized(changed=[target.key for target in changed])


@router.post("/api/admin/ads", status_code=201)
async def add_ad(form: Ad, admin: Admin, service: Service) -> PostedAd:
    """Post an advertisement."""
    async with service.editor.edit(admin, "new advertisement") as edit:
        return PostedAd(id=await edit.insert(ads, **form.model_dump()))


@router.put("/api/admin/ads/{ad_id}", status_code=204, responses=problems(404))
async def change_ad(ad_id: MatchId, form: Ad, admin: Admin, service: Service) -> None:
    """Change an advertisement."""
    async with service.editor.edit(admin, "change of an advertisement") as edit:
        await edit.update(ads, ad_id, **form.model_dump())


@router.delete("/api/admin/ads/{ad_id}", status_code=204, responses=problems(404))
async def remove_ad(ad_id: MatchId, admin: Admin, service: Service) -> None:
    """Remove an advertisement."""
    async with service.editor.edit(admin, "removal of an advertisement") as edit:
        await edit.delete(ads, ad_id)


@router.post("/api/admin/leaderboards", status_code=204)
async def compute_leaderboards(_: Admin, service: Service) -> None:
    """Compute the leaderboards now."""
    await service.leaderboards.compute()


@router.post("/api/admin/prewarm")
async def prewarm(_: Admin, service: Service) -> Warmed:
    """Load pages that are missing or older than the window; the result."""
    report = await service.site.prewarm()
    if report is None:
        return Warmed(begun=False)
    return Warmed(begun=True, loaded=report.loaded, fresh=report.fresh, failed=report.failed)


@router.get("/api/admin/stats")
async def stats(_: Admin, service: Service) -> dict[str, int]:
    """Row counts, as of the last hour or the last result."""
    try:
        page = await service.store[ADMIN_STATS].page()
    except (LoadFailed, StillLoading):
        raise unavailable("The statistics are not available at the moment; please try again.") from None
    found: dict[str, int] = {} if page is None else page.json()
    return found


@router.get("/api/admin/monitoring")
async def monitoring(_: Admin, service: Service, response: Response) -> dict[str, Any]:
    """Figures of this process and of Redis, and advice."""
    response.headers["cache-control"] = "no-store"
    found: dict[str, Any] = msgspec.to_builtins(await service.report())
    return found


@router.websocket("/ws/admin")
async def updates(websocket: WebSocket) -> None:
    """Updates for administrators and helpers: `{"message": {...}}`, and `{"missed": true}` after a gap."""
    service: League = websocket.app.state.service
    handle = RequestSession.of(websocket)
    session = await handle.get()
    try:
        if not isinstance(session, Session) or session.role not in STAFF:
            raise problem(403, "This is for administrators and helpers of matches.")
        with service.sockets.opened(session.user_id):
            connection = service.admins.connect(user_id=session.user_id)
            await fanout_websocket(websocket, connection, allowed=handle.is_valid)
    except Problem as refused:
        await refused(websocket.scope, websocket.receive, websocket.send)
