"""User actions: register, sign in and out, predict, vote, comment."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ephemera.web import ClientAddress, limit_headers, limit_refusal
from ephemera_services.league.access import Caller, Handle, Service
from ephemera_services.league.forms import (
    Ballot,
    Comment,
    Credentials,
    MatchId,
    Me,
    Posted,
    Queued,
    Registration,
    Score,
)
from ephemera_services.league.keys import LIMITS, Session, Vote
from ephemera_services.runtime import problem, problems

router = APIRouter()


@router.post("/api/users", status_code=201, tags=["me"], responses=problems(409, 429))
async def register(form: Registration, service: Service, request: Request, response: Response) -> Me:
    """Create an account."""
    await _consume_limit(service, request, response)
    user_id = await service.accounts.register(form.name, form.password.get_secret_value())
    return Me(user_id=str(user_id), name=form.name, role="user")


@router.post("/api/session", tags=["me"], responses=problems(401, 429))
async def sign_in(
    form: Credentials, service: Service, handle: Handle, request: Request, response: Response
) -> Me:
    """Sign in: the response sets the session cookie."""
    await _consume_limit(service, request, response)
    found = await service.accounts.authenticate(form.name, form.password.get_secret_value())
    if found is None:
        raise problem(401, "Wrong name or password.", headers=[(b"www-authenticate", b"Cookie")])
    session = Session(str(found.id), found.name, found.role)
    await handle.start(session)
    return Me(user_id=session.user_id, name=session.name, role=session.role)


@router.delete("/api/session", status_code=204, tags=["me"])
async def sign_out(handle: Handle) -> None:
    """Sign out: end the session."""
    await handle.end()


@router.get("/api/me", tags=["me"])
async def me(caller: Caller, response: Response) -> Me:
    """Who is signed in."""
    response.headers["cache-control"] = "private, no-store"
    return Me(user_id=caller.user_id, name=caller.name, role=caller.role)


@router.put("/api/me/predictions/{match_id}", status_code=204, tags=["me"], responses=problems(404, 409))
async def predict(match_id: MatchId, form: Score, caller: Caller, service: Service) -> None:
    """Predict a score, until the kickoff."""
    await service.supporters.predict(int(caller.user_id), match_id, form.home_goals, form.away_goals)


@router.post("/api/matches/{match_id}/votes", status_code=202, tags=["live"], responses=problems(404, 409))
async def vote(match_id: MatchId, form: Ballot, caller: Caller, service: Service) -> Queued:
    """Vote for the winner: one vote per user and match, counted within seconds."""
    if not await service.supporters.vote(Vote(int(caller.user_id), match_id, form.choice)):
        raise problem(409, "You have already voted on this match.")
    return Queued()


@router.post("/api/matches/{match_id}/comments", status_code=201, tags=["live"], responses=problems(404))
async def comment(match_id: MatchId, form: Comment, caller: Caller, service: Service) -> Posted:
    """Comment on a match."""
    return Posted(id=await service.supporters.comment(int(caller.user_id), match_id, form.text))


async def _consume_limit(service: Service, request: Request, response: Response) -> None:
    """Count an attempt against the limit of the client's address."""
    client = ClientAddress(service.settings.trusted_proxies)
    claim = LIMITS.rules["sign-in"].on(client.network(request.scope))
    decision = await service.store[LIMITS].check(claim)
    if not decision.allowed:
        raise limit_refusal(decision)
    response.raw_headers.extend(limit_headers(decision))
