"""What the league's routes take and give, as its OpenAPI document shows it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from ephemera_services.runtime import LOGIN_NAME_PATTERN

_NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"

MatchId = Annotated[int, Field(ge=1, le=999_999_999_999_999)]
Goals = Annotated[int, Field(ge=0, le=99, strict=True)]
Minute = Annotated[int, Field(ge=0, le=150, strict=True)]
Name = Annotated[str, Field(pattern=LOGIN_NAME_PATTERN, examples=["ann"])]
Line = Annotated[str, Field(min_length=1, max_length=100, pattern=_NO_CONTROL)]


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Registration(_Taken):
    """A new account."""

    name: Name
    password: Annotated[SecretStr, Field(min_length=10, max_length=128, examples=["correct horse battery"])]


class Credentials(_Taken):
    """Who wants to sign in."""

    name: Name
    password: Annotated[SecretStr, Field(min_length=1, max_length=128)]


class Me(BaseModel):
    """Who is signed in."""

    user_id: str
    name: str
    role: Literal["user", "admin"]


class Score(_Taken):
    """A score: foretold, or final."""

    home_goals: Goals
    away_goals: Goals


class LiveScore(Score):
    """The score of a match that is being played."""

    minute: Minute


class Event(_Taken):
    """A goal or a card."""

    minute: Minute
    kind: Literal["goal", "card"]
    side: Literal["home", "away"]
    player: Line


class Comment(_Taken):
    """A comment under a match."""

    text: Annotated[str, Field(min_length=1, max_length=500, pattern=_NO_CONTROL)]


class Posted(BaseModel):
    """The comment that was posted."""

    id: int


class Ballot(_Taken):
    """Who will win."""

    choice: Literal["home", "draw", "away"]


class Queued(BaseModel):
    """The vote is counted within some seconds."""

    status: Literal["queued"] = "queued"


class Finalized(BaseModel):
    """The pages that show the result now."""

    changed: list[str]


class Ad(_Taken):
    """An advertisement."""

    title: Line
    link: Annotated[str, Field(max_length=300, pattern=r"^https://[!-~]{1,290}$")]
    place: Annotated[int, Field(ge=0, le=1000, strict=True)] = 0


class PostedAd(BaseModel):
    """The advertisement that was posted."""

    id: int


class Warmed(BaseModel):
    """What came of prewarming; `begun` is false when another process was at it."""

    begun: bool
    loaded: int = 0
    fresh: int = 0
    failed: int = 0
