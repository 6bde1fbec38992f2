"""The tables of identity. Times are UTC, by the database's clock.

`mail_tokens` has digests of the codes that were sent by mail, never a code. `mails` are requests for mails: a
code is created when its mail is sent. `upkeep` deletes rows that no longer matter.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
)

from ephemera_services.runtime import outbox_table

metadata = MetaData(schema="identity")
AnyRow = Row[*tuple[Any, ...]]
"""A row of some columns, read by their names."""


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
    Column(
        "password_version",
        Integer,
        nullable=False,
        server_default="0",
        comment="grows with each new password; a new hash of the same one keeps it",
    ),
    Column("role", Text, CheckConstraint("role IN ('user', 'admin')"), nullable=False),
    Column("first_name", Text, nullable=False),
    Column("last_name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("address", Text, nullable=False),
    _instant("created_at", now=True),
    _instant("updated_at", now=True),
    _instant("email_verified_at", nullable=True),
    _instant("blocked_at", nullable=True),
)
Index("users_by_email", func.lower(users.c.email), unique=True)

sign_ins = Table(
    "sign_ins",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column(
        "user_id",
        Uuid,
        ForeignKey(users.c.id, ondelete="SET NULL"),
        index=True,
        comment="null: deleted, but other services must still learn that the sign-in ended",
    ),
    Column("refresh_id", Text, nullable=False, comment="the only valid refresh token"),
    Column("ip_address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    _instant("created_at", now=True),
    _instant("refreshed_at", now=True),
    _instant("expires_at"),
    _instant("ended_at", nullable=True),
    Column(
        "ended_by", BigInteger, index=True, comment="the transaction that ended it, for `revocation_feed`"
    ),
)

revoked_tokens = Table(
    "revoked_tokens",
    metadata,
    Column("id", Text, primary_key=True, comment="of an access token that was revoked without its sign-in"),
    _instant("revoked_at", now=True),
    Column("revoked_by", BigInteger, nullable=False, comment="the transaction of it, for `revocation_feed`"),
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

mail_tokens = Table(
    "mail_tokens",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("user_id", Uuid, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False),
    Column("purpose", Text, CheckConstraint("purpose IN ('reset', 'verify', 'change')"), nullable=False),
    Column("email", Text, nullable=False, comment="the address that it was sent to"),
    _instant("expires_at"),
    UniqueConstraint("user_id", "purpose"),
)

mails = Table(
    "mails",
    metadata,
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("to", Text, nullable=False),
    Column("user_id", Uuid, comment="null: the user with this address, if there is one"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    _instant("created_at", now=True),
    _instant("next_at", now=True),
)
Index("mails_by_next", mails.c.next_at)

security_events = Table(
    "security_events",
    metadata,
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("user_id", Uuid, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False),
    Column("what", Text, nullable=False),
    Column("by_admin", Boolean, nullable=False),
    Column("ip_address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    _instant("at", now=True),
)
Index("security_events_by_user", security_events.c.user_id, security_events.c.number)
Index("security_events_by_time", security_events.c.at)

outbox_events = outbox_table(metadata)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("kid", Text, primary_key=True),
    Column("pem", LargeBinary, nullable=False, comment="encrypted"),
    Column("signs_from", Double, nullable=False, comment="seconds since 1970"),
    Column("verifies_until", Double, nullable=False, comment="seconds since 1970, or infinity"),
)
