"""User actions: register, sign in and out, predict, vote, comment."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ephemera.errors import SessionsRevoked
from ephemera.patterns.rate_limits import Claim
from ephemera_services.league.access import Caller, Handle, Service, consume
from ephemera_services.league.forms import (
    Ballot,
    Comment,
    MatchId,
    Me,
    OwnVote,
    Place,
    Posted,
    Queued,
    Registration,
    Score,
    SignInForm,
)
from ephemera_services.league.keys import LIMITS, Session, Vote
from ephemera_services.league.loaders import is_board, is_season_board, place, vote_of
from ephemera_services.league.seasons import CURRENT
from ephemera_services.runtime import problem, problems

router = APIRouter()


@router.post("/api/users", status_code=201, tags=["me"], responses=problems(409, 429))
async def register(form: Registration, service: Service, request: Request, response: Response) -> Me:
    """Create an account."""
    await consume(service, response, *_registration_claims(service, request))
    user_id = await service.accounts.register(form.name, form.password.get_secret_value())
    return Me(user_id=str(user_id), name=form.name, role="user")


@router.post("/api/session", tags=["me"], responses=problems(401, 403, 429))
async def sign_in(
    form: SignInForm, service: Service, handle: Handle, request: Request, response: Response
) -> Me:
    """Sign in: the response sets the session cookie."""
    address = service.client.network(request.scope)
    await consume(service, response, LIMITS["sign-in"].on(address))
    attempt = await service.attempts.begin(form.name, address)
    found = await service.accounts.authenticate(form.name, form.password.get_secret_value())
    if found is None:
        raise problem(401, "Wrong name or password.", headers=[(b"www-authenticate", b"Cookie")])
    await service.attempts.succeeded(attempt)
    announced = await handle.begin_sign_in(str(found.id))
    found = await service.accounts.unblocked(found.id)
    session = Session(str(found.id), found.name, found.role)
    await _start(handle, session, announced)
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


@router.get("/api/me/leaderboards/{board}", tags=["me"], responses=problems(404, 429))
async def own_place(
    board: str, caller: Caller, service: Service, response: Response, season: str = CURRENT
) -> Place:
    """The caller's place on a leaderboard, of which the page of all has only the first ones."""
    response.headers["cache-control"] = "private, no-store"
    await consume(service, response, LIMITS["pages"].on(caller.user_id))
    if not (is_board(board) if season == CURRENT else is_season_board(board, season)):
        raise problem(404, "There is no such leaderboard.")
    found = await place(service.engine, int(caller.user_id), board, season)
    return Place() if found is None else Place(rank=found.rank, points=found.points, exact=found.exact)


@router.get("/api/me/votes/{match_id}", tags=["me"], responses=problems(429))
async def own_vote(match_id: MatchId, caller: Caller, service: Service, response: Response) -> OwnVote:
    """The caller's vote on a match, once it is counted."""
    response.headers["cache-control"] = "private, no-store"
    await consume(service, response, LIMITS["pages"].on(caller.user_id))
    return OwnVote(choice=await vote_of(service.engine, int(caller.user_id), match_id))


@router.put("/api/me/predictions/{match_id}", status_code=204, tags=["me"], responses=problems(404, 409, 429))
async def predict(
    match_id: MatchId, form: Score, caller: Caller, service: Service, response: Response
) -> None:
    """Predict a score, until the kickoff."""
    await consume(service, response, LIMITS["predict"].on(caller.user_id))
    await service.supporters.predict(int(caller.user_id), match_id, form.home_goals, form.away_goals)


@router.post(
    "/api/matches/{match_id}/votes", status_code=202, tags=["live"], responses=problems(404, 409, 429)
)
async def vote(
    match_id: MatchId, form: Ballot, caller: Caller, service: Service, response: Response
) -> Queued:
    """Vote for the winner: one vote per user and match, counted within seconds."""
    await consume(service, response, LIMITS["vote"].on(caller.user_id))
    if not await service.supporters.vote(Vote(int(caller.user_id), match_id, form.choice)):
        raise problem(409, "You have already voted on this match.")
    return Queued()


@router.post("/api/matches/{match_id}/comments", status_code=201, tags=["live"], responses=problems(404, 429))
async def comment(
    match_id: MatchId, form: Comment, caller: Caller, service: Service, response: Response
) -> Posted:
    """Comment on a match. 10 per minute."""
    await consume(service, response, LIMITS["comment"].on(caller.user_id))
    return Posted(id=await service.supporters.comment(int(caller.user_id), match_id, form.text))


async def _start(handle: Handle, session: Session, announced: str) -> None:
    try:
        await handle.start(session, sign_in=announced)
    except SessionsRevoked:
        raise problem(403, "This account was changed in the meantime; please sign in again.") from None


def _registration_claims(service: Service, request: Request) -> list[Claim]:
    by_address = LIMITS["register"].on(service.client.network(request.scope))
    return [by_address, LIMITS["register-total"].on("all")]
