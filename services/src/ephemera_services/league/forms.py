"""Request and response models of the league's routes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ephemera_services.runtime import LOGIN_NAME_PATTERN, GivenPassword, NewPassword, RequestBody

_NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"

MatchId = Annotated[int, Field(ge=1, le=999_999_999_999_999)]
Goals = Annotated[int, Field(ge=0, le=99, strict=True)]
Minute = Annotated[int, Field(ge=0, le=150, strict=True)]
Name = Annotated[str, Field(pattern=LOGIN_NAME_PATTERN, examples=["ann"])]
Line = Annotated[str, Field(min_length=1, max_length=100, pattern=_NO_CONTROL)]


class Registration(RequestBody):
    """A new account."""

    name: Name
    password: NewPassword


class SignInForm(RequestBody):
    """The credentials of a sign-in."""

    name: Name
    password: GivenPassword


class Me(BaseModel):
    """The signed-in user."""

    user_id: str
    name: str
    role: Literal["user", "helper", "admin"]


class Place(BaseModel):
    """A user's place on a leaderboard; null without points on it."""

    rank: int | None = None
    points: int | None = None
    exact: int | None = None


class Score(RequestBody):
    """A score: predicted, or final."""

    home_goals: Goals
    away_goals: Goals


class FinalScore(Score):
    """The final score of a match."""

    override: Annotated[bool, Field(strict=True)] = False
    """Also for a match that is not near its kick-off."""


class LiveScore(FinalScore):
    """The score of a live match."""

    minute: Minute


class Event(RequestBody):
    """A goal or a card."""

    minute: Minute
    kind: Literal["goal", "card"]
    side: Literal["home", "away"]
    player: Line


class Comment(RequestBody):
    """A comment under a match."""

    text: Annotated[str, Field(min_length=1, max_length=500, pattern=_NO_CONTROL)]


class Posted(BaseModel):
    """The posted comment."""

    id: int


Choice = Literal["home", "draw", "away"]


class Ballot(RequestBody):
    """A vote for the winner."""

    choice: Choice


class OwnVote(BaseModel):
    """A user's vote on a match; null without one."""

    choice: Choice | None


class Queued(BaseModel):
    """The vote is counted within seconds."""

    status: Literal["queued"] = "queued"


class Finalized(BaseModel):
    """The pages that changed."""

    changed: list[str]


class Ad(RequestBody):
    """An advertisement."""

    title: Line
    link: Annotated[str, Field(max_length=300, pattern=r"^https://[!-~]{1,290}$")]
    position: Annotated[int, Field(ge=0, le=1000, strict=True)] = 0


class PostedAd(BaseModel):
    """The posted advertisement."""

    id: int


class Warmed(BaseModel):
    """The result of prewarming; `begun` is false if another process was doing it."""

    begun: bool
    loaded: int = 0
    fresh: int = 0
    failed: int = 0
