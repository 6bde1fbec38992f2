"""Request and response models of the administration."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, model_validator

from ephemera_services.league.forms import Line, Minute
from ephemera_services.runtime import RequestBody

Id = Annotated[int, Field(ge=1, le=999_999_999_999_999)]
BodyId = Annotated[int, Field(ge=1, le=999_999_999_999_999, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Side = Literal["home", "away"]
Role = Literal["user", "helper", "admin"]
Status = Literal["scheduled", "live", "finished", "postponed", "cancelled"]
Phase = Literal["before", "first half", "half-time", "second half", "ended"]
Search = Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]
_EARLIEST, _LATEST = 2000, 2100
"""Years of kick-offs."""
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def _require_rfc_3339(value: object) -> object:
    """Refuse numbers, which would be seconds since 1970."""
    if not isinstance(value, str) or _RFC_3339.fullmatch(value) is None:
        raise ValueError("a date and time with an offset (RFC 3339)")
    return value


Instant = Annotated[AwareDatetime, BeforeValidator(_require_rfc_3339)]


class Action(RequestBody):
    """What happened on the pitch."""

    id: UUID
    """Of this action, chosen by the client: repeat a request with the same one."""
    seen: Annotated[int, Field(ge=0, le=999_999_999_999_999, strict=True)]
    """The `revision` that the client has seen."""
    kind: Literal["start", "goal", "card", "half-time", "second half", "end"]
    side: Side | None = None
    player: Line | None = None
    minute: Minute | None = None
    """Of a goal or a card; the clock's, if it is not given."""
    override: Flag = False
    """Start far from the kick-off."""
    note: Line | None = None
    """The reason of an override."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.kind in ("goal", "card")) != (self.side is not None):
            raise ValueError("a goal and a card have a side, others have none")
        return self


class MatchEvent(BaseModel):
    """A goal or a card of a match."""

    id: int
    minute: int
    kind: Literal["goal", "card"]
    side: Side
    player: str


class Change(BaseModel):
    """A change of the history."""

    id: int
    at: datetime
    by: str
    action: str
    match_id: int | None
    note: str | None
    rows: list[dict[str, Any]]
    """What each row was before and after."""
    undone: bool
    undoable: bool


class MatchLine(BaseModel):
    """A match in a list."""

    id: int
    stage: str
    round: int
    kickoff: datetime
    venue: str
    status: Status
    phase: Phase
    minute: int
    home: str
    away: str
    home_goals: int
    away_goals: int
    helpers: list[str]


class Team(BaseModel):
    """A side of a match, with its squad."""

    club_id: int
    name: str
    players: list[str]


class Control(BaseModel):
    """Everything that live control shows of a match."""

    match: MatchLine
    teams: dict[Side, Team]
    events: list[MatchEvent]
    changes: list[Change]
    revision: int
    """Of the last change; an action names it as `seen`."""
    near: bool
    """Whether it can start now without an override."""


class MatchList(BaseModel):
    """Matches, by kick-off."""

    matches: list[MatchLine]


class NewFixture(RequestBody):
    """A fixture to create."""

    season_id: BodyId | None = None
    """The current season of the first competition, if none is named."""
    stage: Line = "league"
    round: Annotated[int, Field(ge=1, le=999, strict=True)]
    home_id: BodyId
    away_id: BodyId
    kickoff: Instant
    venue: Line

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.home_id == self.away_id:
            raise ValueError("a club does not play against itself")
        _check_year(self.kickoff)
        return self


class NewSeason(RequestBody):
    """A season to create."""

    competition: Line
    """By its name; one that is new is created."""
    name: Line


class FixtureChange(RequestBody):
    """A fixture to move: a new kick-off, a new venue, or both. A postponed one is scheduled again."""

    kickoff: Instant | None = None
    venue: Line | None = None

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.kickoff is None and self.venue is None:
            raise ValueError("name a kick-off or a venue")
        _check_year(self.kickoff)
        return self


def _check_year(kickoff: datetime | None) -> None:
    if kickoff is not None and not _EARLIEST <= kickoff.year < _LATEST:
        raise ValueError("the year of the kick-off is out of range")


class Helpers(RequestBody):
    """The helpers of a match: all of them."""

    user_ids: Annotated[list[BodyId], Field(max_length=10)]


class Created(BaseModel):
    """The id of what was created."""

    id: int


class Undone(BaseModel):
    """The change that undid another one."""

    action: str
    match_id: int | None


class Movement(BaseModel):
    """A club whose line in the table changes."""

    club: str
    rank: tuple[int, int]
    """Before and after."""
    points: tuple[int, int]


class Award(BaseModel):
    """Points that a user would have for their prediction."""

    name: str
    prediction: tuple[int, int]
    points: tuple[int | None, int]


class Preview(BaseModel):
    """What a finalization would change."""

    score: tuple[tuple[int, int], tuple[int, int]]
    """Before and after."""
    status: Status
    """Before."""
    table: list[Movement]
    predictions: int
    exact: int
    right_winner: int
    awards: list[Award]
    """The first twenty, most points first."""
    pages: list[str]
    """Keys of the pages that would change."""


class ClubName(RequestBody):
    """The name of a club."""

    name: Line


class PlayerForm(RequestBody):
    """A player of a club."""

    name: Line
    number: Annotated[int, Field(ge=1, le=999, strict=True)] | None = None


class Player(BaseModel):
    """A player of a club."""

    id: int
    name: str
    number: int | None


class Club(BaseModel):
    """A club with its squad."""

    id: int
    name: str
    players: list[Player]


class ClubList(BaseModel):
    """The clubs, by name."""

    clubs: list[Club]


class ListedComment(BaseModel):
    """A comment, for moderation."""

    id: int
    match_id: int
    match: str
    by: str
    user_id: int
    text: str
    at: datetime


class CommentList(BaseModel):
    """Comments, the newest first."""

    comments: list[ListedComment]


class User(BaseModel):
    """A user, for administrators."""

    id: int
    name: str
    role: Role
    blocked: bool
    created_at: datetime
    comments: int
    predictions: int


class UserList(BaseModel):
    """Users, the newest first."""

    users: list[User]


class UserChange(RequestBody):
    """A role to give, a block to set or lift, or both."""

    role: Role | None = None
    blocked: Flag | None = None

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.role is None and self.blocked is None:
            raise ValueError("name a role or a block")
        return self


class ChangeList(BaseModel):
    """Changes, the newest first."""

    changes: list[Change]


class CachedResource(BaseModel):
    """A resource of the cache, and how this process used it."""

    pattern: str
    fields: list[str]
    purpose: str
    hits: int
    misses: int


class CacheList(BaseModel):
    """The resources of the cache."""

    resources: list[CachedResource]


class Invalidation(RequestBody):
    """A page to load again."""

    pattern: Annotated[str, Field(max_length=100, pattern=r"^[a-z:_{}]+$", examples=["league:table"])]
    fields: Annotated[
        dict[Annotated[str, Field(max_length=20)], Annotated[str, Field(max_length=20)]],
        Field(max_length=3, default_factory=dict),
    ]
