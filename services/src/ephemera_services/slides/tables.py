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

from ephemera_services.runtime import sign_outs_table

metadata = MetaData(schema="slides")

pending_sign_outs = sign_outs_table(metadata)


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
    Column(
        "subscription_status",
        Text,
        CheckConstraint("subscription_status IN ('active', 'trialing', 'past_due')"),
        nullable=False,
        server_default="active",
    ),
    _instant("period_end", nullable=True),
    _instant("created_at", now=True),
)

Index("organizations_by_name", func.lower(organizations.c.name), unique=True)

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
# An address is unique within an organization only: others must not learn that it is taken, or take it.
Index("users_by_email", users.c.organization_id, func.lower(users.c.email), unique=True)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(users.c.id, "user_id"),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True, comment="SHA-256 of the key"),
    _instant("expires_at"),
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
    Column("section", Integer, nullable=False, server_default="0"),
    Column("level", Integer, nullable=False, server_default="0", comment="of the section's heading"),
    Column("heading", Text, nullable=False, server_default="", comment="of the section"),
    Column("text", Text, nullable=False),
    Column("rows", JSONB(none_as_null=True), comment="cells, if it is a table"),
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
    Column("theme", Text, nullable=False, server_default="paper"),
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
    Column("layout", Text, nullable=False, server_default="bullets"),
    Column("bullets", JSONB, nullable=False),
    Column("columns", JSONB, nullable=False, server_default="[]", comment="of a slide with two"),
    Column("table", JSONB(none_as_null=True)),
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
    _instant("expires_at", nullable=True),
    Column("view_count", BigInteger, nullable=False, server_default="0"),
    _instant("created_at", now=True),
)

brand_kits = Table(
    "brand_kits",
    metadata,
    Column("organization_id", Uuid, ForeignKey(organizations.c.id, ondelete="CASCADE"), primary_key=True),
    Column("primary", Text, nullable=False, comment="six hexadecimal digits"),
    Column("accent", Text, nullable=False, comment="six hexadecimal digits"),
    Column("heading_font", Text, nullable=False),
    Column("body_font", Text, nullable=False),
    Column("logo", LargeBinary, comment="PNG or JPEG"),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(organizations.c.id, "organization_id"),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False, comment="signs deliveries"),
    _instant("created_at", now=True),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Uuid, primary_key=True),
    _of(webhooks.c.id, "webhook_id"),
    Column("type", Text, nullable=False),
    Column("payload", JSONB, nullable=False),
    Column("state", Text, nullable=False, server_default="pending"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("status", Integer, comment="of the last response"),
    Column("error", Text, comment="of the last attempt"),
    _instant("last_attempt_at", nullable=True),
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
