"""The tables of the administration: squads, helpers of matches, and the history of changes."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB

from ephemera_services.league.tables import clubs, matches, metadata, users


def _id() -> Column[object]:
    return Column("id", BigInteger, Identity(), primary_key=True)


def _of(name: str, table: Table) -> Column[object]:
    return Column(name, BigInteger, ForeignKey(table.c.id, ondelete="CASCADE"), nullable=False)


players = Table(
    "players",
    metadata,
    _id(),
    _of("club_id", clubs),
    Column("name", Text, nullable=False),
    Column("number", Integer, comment="on the shirt"),
    UniqueConstraint("club_id", "name", name="players_by_name"),
)

assignments = Table(
    "assignments",
    metadata,
    _id(),
    _of("match_id", matches),
    _of("user_id", users),
    UniqueConstraint("match_id", "user_id", name="assignments_by_match"),
)

changes = Table(
    "changes",
    metadata,
    _id(),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("by_id", BigInteger, ForeignKey(users.c.id, ondelete="SET NULL")),
    Column("by_name", Text, nullable=False),
    Column("action", Text, nullable=False, comment="such as 'goal home'"),
    Column("match_id", BigInteger, comment="no foreign key: history outlives what it describes"),
    Column("note", Text, comment="the reason of an override"),
    Column("rows", JSONB, nullable=False, comment="what each row was before and after"),
    Column("request_id", Uuid, unique=True, comment="of the client: a repeated request changes nothing"),
    Column("undoes", BigInteger, ForeignKey("league.changes.id"), unique=True, comment="at most one undo"),
)
Index("changes_by_match", changes.c.match_id, changes.c.id)
