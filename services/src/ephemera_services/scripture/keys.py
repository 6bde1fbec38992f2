"""Everything that scripture keeps in Redis: losing any of it is safe, SQL has it all.

An ingest invalidates exactly what it changed. A process uses its local copies of content for at most
`LOCAL_MAX_AGE`, which is how long an ingest waits before it is acknowledged (`invalidation`): after that no
reader in any process sees an old passage.

Limits are token buckets (GCRA), not windows: a bucket refills continuously, so its key has no window.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ephemera import Catalogue, fixed
from ephemera.patterns.cache import Cache, LocalCache, Storage
from ephemera.patterns.entitlements import Entitlements
from ephemera.patterns.events import DeliveryPolicy, Events
from ephemera.patterns.locks import Locks
from ephemera.patterns.preferences import Preferences
from ephemera.patterns.rate_limits import RateLimits, WhenDown, local_share, token_bucket
from ephemera.patterns.semantic_cache import ModelCalls, Scope, SemanticCache
from ephemera_services.runtime import declare_tables, declare_user_events
from ephemera_services.scripture.events import ContentChanged, Notification
from ephemera_services.scripture.records import (
    AiAnswer,
    Chapter,
    Contents,
    LexiconEntry,
    Passage,
    PassagePart,
    Topic,
    Translation,
)
from ephemera_services.scripture.tables import metadata

LOCAL_MAX_AGE = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_LEASE = timedelta(seconds=10)
"""After which the events of a consumer that died are claimed."""

catalogue = Catalogue("scripture")
_local = LocalCache(max_entries=20_000, max_age=LOCAL_MAX_AGE, when_down="load")

PASSAGES = Cache(
    catalogue,
    "gl:passage:{passage_id}",
    Passage,
    fresh=_HOUR,
    local=_local,
    purpose="A passage in all translations",
    saves="a SQL read for each passage",
    invalidated_by=("an ingest that changed it",),
    if_lost="it is loaded from SQL again",
)

PARTS = Cache(
    catalogue,
    "gl:passage:{passage_id}:{suffix}",
    PassagePart,
    fresh=_HOUR,
    local=_local,
    storage=Storage(hash_tag="passage_id"),
    purpose="The parts of a passage: witnesses, words, xrefs, commentary",
    saves="a SQL read for each of them",
    invalidated_by=("an ingest that changed it",),
    if_lost="it is loaded from SQL again",
)

CHAPTERS = Cache(
    catalogue,
    "gl:chapter:{book_id}.{chapter}:{translation}",
    Chapter,
    fresh=_HOUR,
    local=_local,
    storage=Storage(hash_tag="chapter"),
    purpose="A chapter in one translation",
    saves="a SQL read of all its verses",
    invalidated_by=("an ingest that changed a verse of it",),
    if_lost="it is loaded from SQL again",
)

CONTENTS = Cache(
    catalogue,
    "gl:books:{translation}",
    Contents,
    fresh=_HOUR,
    local=_local,
    purpose="The books and chapters of a translation, with their numbers of verses",
    saves="a count of all its verses",
    invalidated_by=("an ingest or a deletion that added or removed a verse of it",),
    if_lost="it is counted in SQL again",
)

TRANSLATIONS = Cache(
    catalogue,
    "gl:translations",
    list[Translation],
    fresh=_HOUR,
    local=_local,
    purpose="The translations, with their numbers of verses",
    saves="a count of all verses",
    invalidated_by=("an ingest or a deletion that added or removed a verse",),
    if_lost="they are counted in SQL again",
)

TOPICS = Cache(
    catalogue,
    "gl:topic:{topic_id}",
    Topic,
    fresh=_HOUR,
    local=_local,
    purpose="A topic with its passages",
    saves="a SQL read for each topic",
    invalidated_by=("an ingest that changed it",),
    if_lost="it is loaded from SQL again",
)

LEXICON = Cache(
    catalogue,
    "gl:lexicon:{word_id}",
    LexiconEntry,
    fresh=timedelta(hours=24),
    local=_local,
    purpose="An entry of the lexicon",
    saves="a SQL read for each entry",
    invalidated_by=("an ingest that changed it",),
    if_lost="it is loaded from SQL again",
)

FEATURES = Entitlements(
    catalogue,
    "gl:entitlements:{plan_id}:{feature}",
    bool,
    lifetime=fixed(seconds=60),
    kind="value",
    purpose="Whether a plan has a feature",
    invalidated_by=("a change of the plan's features",),
)

PLANS = Entitlements(
    catalogue,
    "gl:user:{user_id}:plan",
    str,
    lifetime=fixed(seconds=60),
    kind="value",
    purpose="The plan of a user",
    invalidated_by=("a change of the user's plan",),
)


class AnswerScope(Scope, frozen=True, kw_only=True):
    """What an answer depends on besides its question; `documents` are the passages given as context."""

    translation: str
    instructions: str
    """A digest of the model's instructions."""


ANSWERS: SemanticCache[AiAnswer, AnswerScope] = SemanticCache(
    catalogue,
    "gl:ai:cache:{prompt_hash}",
    AiAnswer,
    scope=AnswerScope,
    lifetime=fixed(hours=1),
    tokens=lambda answer: answer.tokens,
    model_calls=ModelCalls(timeout=timedelta(seconds=60)),
    purpose="Answers of the model",
    invalidated_by=("a change of the corpus after which other passages fit the question",),
)


class ReadingPreferences(msgspec.Struct, frozen=True):
    """A reader's display preferences, on this device."""

    font_size: int = 16
    reading_mode: str = "day"
    translation: str = "web"
    verse_numbers: bool = True


PREFERENCES = Preferences(
    catalogue,
    "gl:session:{user_id}:prefs",
    ReadingPreferences,
    purpose="A user's display preferences, on this device",
)

PER_MINUTE = {
    "search": {"free": 20, "paid": 200},
    "passages": {"free": 60, "paid": 600},
    "lexicon": {"free": 40, "paid": 400},
    "account": {"free": 60, "paid": 60},
}
AI_PER_HOUR = {"free": 5, "paid": 50, "ai": 200}
_PER_PROCESS: WhenDown = local_share(of=1)  # answers are expensive
_RATE = "gl:ratelimit:{subject}:{endpoint}"

LIMITS = RateLimits(
    catalogue,
    "gl:ratelimit",
    *(
        token_bucket(name, tiers, per=_MINUTE, key=_RATE, where={"endpoint": name})
        for name, tiers in PER_MINUTE.items()
    ),
    token_bucket("ai", AI_PER_HOUR, per=_HOUR, key=_RATE, where={"endpoint": "ai"}, when_down=_PER_PROCESS),
    role="queue",
)

NOTIFICATIONS = Events(
    catalogue,
    "gl:events:notifications",
    Notification,
    delivery=DeliveryPolicy(lease=_LEASE),  # the group pauses while the mail server is down
    sensitive=True,
    purpose="Notifications to users",
)

USERS = declare_user_events(catalogue)

INGESTS = Events(
    catalogue,
    "gl:events:ingest",
    ContentChanged,
    delivery=DeliveryPolicy(lease=_LEASE),
    purpose="Content that an ingest changed, for invalidation",
    if_lost="a cache that was not invalidated before is stale until it expires",
)

INGEST_LOCK = Locks(
    catalogue,
    "gl:lock:ingest:{schema}",
    lease=timedelta(seconds=120),
    purpose="One ingest of a schema at a time",
)

TABLES = declare_tables(catalogue, metadata)
"""The service's own tables in SQL, for `ephemera migrate`."""
