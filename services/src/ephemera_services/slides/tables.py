"""The tables of slides. Times are UTC, by the database's clock."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    false,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(schema="slides")


def _instant(name: str, *, now: bool = False, nullable: bool = False) -> Column[object]:
    default = func.now() if now else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=default)


def _of(column: Column[object], name: str) -> Column[object]:
    """A foreign key column with an index."""
    return Column(name, Uuid, ForeignKey(column, ondelete="CASCADE"), nullable=False, index=True)


organizations = Table(
    "organizations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("plan", Text, nullable=False, server_default="free"),
    Column("requests_per_minute", Integer, comment="overrides the plan's"),
    Column("subscription_status", Text, nullable=False, server_default="active"),
    _instant("created_at", now=True),
)

users = Table(
    "users",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(organizations.c.id, "organization_id"),
    Column("email", Text, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("role", Text, CheckConstraint("role IN ('admin', 'editor', 'viewer')"), nullable=False),
    Column("blocked", Boolean, nullable=False, server_default=false()),
    _instant("created_at", now=True),
)
Index("users_by_email", func.lower(users.c.email), unique=True)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(users.c.id, "user_id"),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the key"),
    _instant("created_at", now=True),
)

documents = Table(
    "documents",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(organizations.c.id, "organization_id"),
    _of(users.c.id, "user_id"),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("job_id", Text, nullable=False),
    _instant("created_at", now=True),
)

chunks = Table(
    "document_chunks",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(documents.c.id, "document_id"),
    Column("number", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("model", Text, nullable=False, comment="of the embedder"),
    Column("vector", LargeBinary, nullable=False, comment="32-bit floats, little-endian"),
)

presentations = Table(
    "presentations",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(organizations.c.id, "organization_id"),
    _of(users.c.id, "user_id"),
    Column("topic", Text, nullable=False),
    Column("audience", Text, nullable=False),
    Column("language", Text, nullable=False),
    Column("slides_total", Integer, nullable=False),
    Column("document_ids", JSONB, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("title", Text, comment="null until it is generated"),
    _instant("created_at", now=True),
)

slides = Table(
    "presentation_slides",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(presentations.c.id, "presentation_id"),
    Column("number", Integer, nullable=False),
    Column("title", Text, nullable=False),
    Column("bullets", JSONB, nullable=False),
    Column("notes", Text, nullable=False),
    Column("sources", JSONB, nullable=False, comment="names of documents"),
)

exports = Table(
    "exports",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(presentations.c.id, "presentation_id"),
    _of(users.c.id, "user_id"),
    Column("format", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("content", LargeBinary),
    Column("url", Text, comment="if it is stored elsewhere"),
    _instant("created_at", now=True),
)

shares = Table(
    "presentation_shares",
    metadata,
    Column("presentation_id", Uuid, ForeignKey(presentations.c.id, ondelete="CASCADE"), primary_key=True),
    Column("token", Text, nullable=False, unique=True),
    Column("view_count", BigInteger, nullable=False, server_default="0"),
    _instant("created_at", now=True),
)

usage_records = Table(
    "usage_records",
    metadata,
    Column("organization_id", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("presentations", BigInteger, nullable=False),
    Column("slides", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("cost_micros", BigInteger, nullable=False),
)
