"""The tables of scripture. Times are UTC, by the database's clock.

`outbox_events` are events of committed changes that are not published yet, or only recently. `mails` has the
sent mails, and all mails if no mail server is configured; the key makes each one unique. The guards have
tables of their own: `FENCES` refuses a superseded ingest, `ONCE` a second handling of an event.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    Uuid,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

from ephemera.patterns.events import OnceGuard
from ephemera.patterns.locks import FenceGuard
from ephemera_services.runtime import outbox_table

metadata = MetaData(schema="scripture")
FENCES = FenceGuard("scripture.lock_fences")
ONCE = OnceGuard("scripture.handled_events")

PLANS = ("free", "paid", "ai")


def _now(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


passages = Table(
    "passages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("book_id", Text, nullable=False),
    Column("chapter", Integer, nullable=False),
    Column("verse", Integer, nullable=False),
)
Index("passages_by_chapter", passages.c.book_id, passages.c.chapter, passages.c.verse)

texts = Table(
    "texts",
    metadata,
    Column("passage_id", Text, ForeignKey(passages.c.id), primary_key=True),
    Column("translation", Text, primary_key=True),
    Column("text", Text, nullable=False),
    Column("searched", TSVECTOR, Computed("to_tsvector('english', text)", persisted=True)),
)
Index("texts_by_word", texts.c.searched, postgresql_using="gin")

parts = Table(
    "parts",
    metadata,
    Column("passage_id", Text, ForeignKey(passages.c.id), primary_key=True),
    Column("suffix", Text, primary_key=True),
    Column("items", JSONB, nullable=False),
)

topics = Table(
    "topics",
    metadata,
    Column("id", Text, primary_key=True),
    Column("title", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("passages", JSONB, nullable=False),
)

lexicon = Table(
    "lexicon",
    metadata,
    Column("id", Text, primary_key=True),
    Column("language", Text, nullable=False),
    Column("lemma", Text, nullable=False),
    Column("transliteration", Text, nullable=False),
    Column("gloss", Text, nullable=False),
    Column("definition", Text, nullable=False),
)

translations = Table(
    "translations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("rights", Text, nullable=False),
)

corpus_versions = Table(
    "corpus_versions",
    metadata,
    Column("schema", Text, primary_key=True),
    Column("version", BigInteger, nullable=False, comment="incremented by each change of this schema"),
)

users = Table(
    "users",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("email", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("plan", Text, CheckConstraint(f"plan IN {PLANS}"), nullable=False),
    _now("created_at"),
)
Index("users_by_email", func.lower(users.c.email), unique=True)

notification_preferences = Table(
    "notification_preferences",
    metadata,
    Column("user_id", Uuid, ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("enabled", Boolean, nullable=False),
)
Index(
    "notification_preferences_by_kind",
    notification_preferences.c.kind,
    postgresql_where=notification_preferences.c.enabled,
)

push_subscriptions = Table(
    "push_subscriptions",
    metadata,
    Column("id", Uuid, primary_key=True, comment="made from the endpoint"),
    Column("user_id", Uuid, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("endpoint", Text, nullable=False),
    Column("p256dh", Text, nullable=False),
    Column("auth", Text, nullable=False),
    Column("last_key", Text, comment="the last notification that its push service took"),
    _now("created_at"),
)

plan_features = Table(
    "plan_features",
    metadata,
    Column("plan_id", Text, primary_key=True),
    Column("feature", Text, primary_key=True),
    Column("allowed", Boolean, nullable=False),
)

user_history = Table(
    "user_history",
    metadata,
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("user_id", Text, nullable=False, index=True),
    Column("what", Text, nullable=False),
    _now("at"),
)

outbox_events = outbox_table(metadata)

mails = Table(
    "mails",
    metadata,
    Column("key", Text, primary_key=True),
    Column("to", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("transport", Text, nullable=False, comment="smtp, or outbox: only stored here"),
    _now("at"),
    Column("sent_at", DateTime(timezone=True), comment="null: not yet, or only stored here"),
)
