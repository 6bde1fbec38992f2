"""The tables of the league. Times are UTC, by the database's clock.

There is no table of standings: they are computed from finished matches, so they cannot disagree with the
results. A competition has seasons, at most one of them current; pages show the current season of the first
competition unless they are asked for another. A match's revisions count the changes of its parts;
`etag:md:{match_id}` shows them. Records of the first version of the site wait in `legacy_predictions` until
they are migrated.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
)

from ephemera.patterns.locks import FenceGuard
from ephemera_services.runtime import sign_outs_table

metadata = MetaData(schema="league")

FENCES = FenceGuard("league.lock_fences")
"""Refuses batches of a migration whose lock another process has acquired."""


def _instant(name: str, *, now: bool = False, nullable: bool = False) -> Column[object]:
    default = func.now() if now else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=default)


def _id() -> Column[object]:
    return Column("id", BigInteger, Identity(), primary_key=True)


def _count(name: str) -> Column[object]:
    return Column(name, Integer, nullable=False, server_default="0")


def _of(name: str, table: Table, *, key: bool = False) -> Column[object]:
    return Column(
        name, BigInteger, ForeignKey(table.c.id, ondelete="CASCADE"), nullable=False, primary_key=key
    )


users = Table(
    "users",
    metadata,
    _id(),
    Column("name", Text, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("role", Text, CheckConstraint("role IN ('user', 'helper', 'admin')"), nullable=False),
    _instant("created_at", now=True),
    _instant("blocked_at", nullable=True),
)
Index("users_by_name", func.lower(users.c.name), unique=True)

pending_sign_outs = sign_outs_table(metadata)

clubs = Table("clubs", metadata, _id(), Column("name", Text, nullable=False, unique=True))

competitions = Table(
    "competitions",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column(
        "position", Integer, nullable=False, server_default="0", comment="the first one is the site's own"
    ),
)

seasons = Table(
    "seasons",
    metadata,
    _id(),
    _of("competition_id", competitions),
    Column("name", Text, nullable=False, comment="such as '2026/27'"),
    Column(
        "status",
        Text,
        CheckConstraint("status IN ('upcoming', 'current', 'past')"),
        nullable=False,
        server_default="upcoming",
    ),
    UniqueConstraint("competition_id", "name"),
)
Index(
    "current_seasons", seasons.c.competition_id, unique=True, postgresql_where=seasons.c.status == "current"
)

matches = Table(
    "matches",
    metadata,
    _id(),
    _of("season_id", seasons),
    Column("stage", Text, nullable=False, comment="'league', or a round of the cup such as 'semi-final'"),
    Column("round", Integer, nullable=False),
    _of("home_id", clubs),
    _of("away_id", clubs),
    _instant("kickoff"),
    Column("venue", Text, nullable=False),
    Column(
        "status",
        Text,
        CheckConstraint("status IN ('scheduled', 'live', 'finished', 'postponed', 'cancelled')"),
        nullable=False,
        server_default="scheduled",
    ),
    Column(
        "phase",
        Text,
        CheckConstraint("phase IN ('before', 'first half', 'half-time', 'second half', 'ended')"),
        nullable=False,
        server_default="before",
    ),
    _instant("phase_since", nullable=True),
    _count("minute"),
    Column("minute_at", DateTime(timezone=True), comment="when it was set by hand; null: the phase counts"),
    _count("home_goals"),
    _count("away_goals"),
    _instant("ended_at", nullable=True),
    Column("meta_revision", BigInteger, nullable=False, server_default="1"),
    Column("live_revision", BigInteger, nullable=False, server_default="1"),
    Column("comments_revision", BigInteger, nullable=False, server_default="1"),
)
Index("matches_by_kickoff", matches.c.kickoff)
Index("matches_by_season", matches.c.season_id, matches.c.status)

events = Table(
    "events",
    metadata,
    _id(),
    _of("match_id", matches),
    Column("minute", Integer, nullable=False),
    Column("kind", Text, CheckConstraint("kind IN ('goal', 'card')"), nullable=False),
    Column("side", Text, CheckConstraint("side IN ('home', 'away')"), nullable=False),
    Column("player", Text, nullable=False),
)
Index("events_by_match", events.c.match_id, events.c.minute)

comments = Table(
    "comments",
    metadata,
    _id(),
    _of("match_id", matches),
    _of("user_id", users),
    Column("text", Text, nullable=False),
    _instant("posted_at", now=True),
)
Index("comments_by_match", comments.c.match_id, comments.c.id.desc())

predictions = Table(
    "predictions",
    metadata,
    _of("user_id", users, key=True),
    _of("match_id", matches, key=True),
    Column("home_goals", Integer, nullable=False),
    Column("away_goals", Integer, nullable=False),
    Column("points", Integer, comment="null until the match is finished"),
    _instant("placed_at", now=True),
)
Index("predictions_by_match", predictions.c.match_id)

legacy_predictions = Table(
    "legacy_predictions",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("user_id", BigInteger, nullable=False),
    Column("match_id", BigInteger, nullable=False),
    Column("score", Text, nullable=False, comment="as the first version of the site stored it: '2:1'"),
    _instant("placed_at"),
    Column(
        "outcome",
        Text,
        CheckConstraint("outcome IN ('copied', 'superseded', 'orphan', 'unreadable')"),
        comment="null until it is migrated",
    ),
)
_left = legacy_predictions.c.outcome.is_(None)
Index("legacy_predictions_left", legacy_predictions.c.id, postgresql_where=_left)
Index("legacy_predictions_of_user", legacy_predictions.c.user_id, postgresql_where=_left)

votes = Table(
    "votes",
    metadata,
    _of("user_id", users, key=True),
    _of("match_id", matches, key=True),
    Column("choice", Text, CheckConstraint("choice IN ('home', 'draw', 'away')"), nullable=False),
)
Index("votes_by_match", votes.c.match_id, votes.c.choice)

ranks = Table(
    "ranks",
    metadata,
    Column("board", Text, primary_key=True),
    Column("rank", Integer, primary_key=True),
    _of("user_id", users),
    Column("points", Integer, nullable=False),
    Column("exact", Integer, nullable=False, comment="exactly predicted scores"),
)
Index("ranks_by_user", ranks.c.user_id, ranks.c.board)

computed = Table(
    "computed", metadata, Column("what", Text, primary_key=True), _instant("computed_at", now=True)
)

ads = Table(
    "ads",
    metadata,
    _id(),
    Column("title", Text, nullable=False),
    Column("link", Text, nullable=False),
    Column("position", Integer, nullable=False),
)
