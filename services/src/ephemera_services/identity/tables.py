"""The tables of identity. Times are UTC, by the database's clock."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    func,
)

metadata = MetaData(schema="identity")


def _instant(name: str, *, now: bool = False, nullable: bool = False) -> Column[object]:
    return Column(
        name,
        DateTime(timezone=True),
        nullable=nullable,
        server_default=func.now() if now else None,
    )


users = Table(
    "users",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("email", Text, nullable=False),
    Column("password_hash", Text, nullable=False),
    Column("role", Text, CheckConstraint("role IN ('user', 'admin')"), nullable=False),
    Column("first_name", Text, nullable=False),
    Column("last_name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("address", Text, nullable=False),
    _instant("created_at", now=True),
    _instant("updated_at", now=True),
)
Index("users_by_email", func.lower(users.c.email), unique=True)

sign_ins = Table(
    "sign_ins",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("user_id", Uuid, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("refresh_id", Text, nullable=False, comment="the only valid refresh token"),
    Column("ip_address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    _instant("created_at", now=True),
    _instant("refreshed_at", now=True),
    _instant("expires_at"),
    _instant("ended_at", nullable=True),
)

documents = Table(
    "documents",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("user_id", Uuid, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    _instant("created_at", now=True),
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("kid", Text, primary_key=True),
    Column("pem", LargeBinary, nullable=False),
    Column("encrypted", Boolean, nullable=False),
    Column("signs_from", Double, nullable=False, comment="seconds since 1970"),
    Column("verifies_until", Double, nullable=False, comment="seconds since 1970, or infinity"),
)
