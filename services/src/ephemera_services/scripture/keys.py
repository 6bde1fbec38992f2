"""Everything that scripture keeps in Redis: all of it may vanish, and SQL has it all.

Content is cached for as long as it may be old, and an ingest ends exactly what it changed. A process trusts
its own copies of content for `COPIES_TRUSTED` at most, which is how long an ingest waits before it is
acknowledged (`invalidation`): no reader sees an old passage after that, in whatever process.

Limits are real buckets (GCRA), not windows: a bucket refills all the time and so has no window in its key.
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
from ephemera.patterns.semantic_cache import Asking, Scope, SemanticCache
from ephemera_services.scripture.events import ContentChanged, Notification, UserChanged, UserCreated
from ephemera_services.scripture.records import AiAnswer, Chapter, LexiconEntry, Part, Passage, Topic

COPIES_TRUSTED = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_LEASE = timedelta(seconds=10)
"""How long a consumer that died is waited for."""

catalogue = Catalogue("scripture")
_local = LocalCache(max_entries=20_000, max_age=COPIES_TRUSTED, when_down="load")

PASSAGES = Cache(
    catalogue,
    "gl:passage:{passage_id}",
    Passage,
    fresh=_HOUR,
    local=_local,
    purpose="A passage in all translations",
    saves="a SQL read for each passage",
    invalidated_by=("an ingest that changed it",),
    if_lost="it is read from SQL again",
)

PARTS = Cache(
    catalogue,
    "gl:passage:{passage_id}:{suffix}",
    Part,
    fresh=_HOUR,
    local=_local,
    storage=Storage(hash_tag="passage_id"),
    purpose="What belongs to a passage: witnesses, words, xrefs, commentary",
    saves="a SQL read for each of them",
    invalidated_by=("an ingest that changed it",),
    if_lost="it is read from SQL again",
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
    if_lost="it is read from SQL again",
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
    if_lost="it is read from SQL again",
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
    if_lost="it is read from SQL again",
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
    """A digest of what the model is told to do."""


ANSWERS: SemanticCache[AiAnswer, AnswerScope] = SemanticCache(
    catalogue,
    "gl:ai:cache:{prompt_hash}",
    AiAnswer,
    scope=AnswerScope,
    lifetime=fixed(hours=1),
    tokens=lambda answer: answer.tokens,
    sources=lambda answer: [passage.id for passage in answer.passages],
    asking=Asking(timeout=timedelta(seconds=60)),
    purpose="Answers as the model gave them",
    invalidated_by=("an ingest that changed a passage they rest on",),
)


class Look(msgspec.Struct, frozen=True):
    """How a reader likes to read, on this device."""

    font_size: int = 16
    reading_mode: str = "day"
    translation: str = "web"
    verse_numbers: bool = True


PREFERENCES = Preferences(
    catalogue, "gl:session:{user_id}:prefs", Look, purpose="How a user likes to read, on this device"
)

PER_MINUTE = {
    "search": {"free": 20, "paid": 200},
    "passages": {"free": 60, "paid": 600},
    "lexicon": {"free": 40, "paid": 400},
}
AI_PER_HOUR = {"free": 5, "paid": 50, "ai": 200}
_ALONE: WhenDown = local_share(of=1)  # each process by itself: answers are dear
_RATE = "gl:ratelimit:{subject}:{endpoint}"

LIMITS = RateLimits(
    catalogue,
    "gl:ratelimit",
    *(
        token_bucket(name, tiers, per=_MINUTE, key=_RATE, where={"endpoint": name})
        for name, tiers in PER_MINUTE.items()
    ),
    token_bucket("ai", AI_PER_HOUR, per=_HOUR, key=_RATE, where={"endpoint": "ai"}, when_down=_ALONE),
)

NOTIFICATIONS = Events(
    catalogue,
    "gl:events:notifications",
    Notification,
    delivery=DeliveryPolicy(max_deliveries=50, lease=_LEASE),  # about eight minutes without a mail server
    sensitive=True,
    purpose="What users are to be told",
)

USERS: Events[UserCreated | UserChanged] = Events(
    catalogue,
    "gl:events:users",
    UserCreated | UserChanged,
    delivery=DeliveryPolicy(max_deliveries=6, first_retry=timedelta(milliseconds=250), lease=_LEASE),
    purpose="Users that came or changed",
)

INGESTS = Events(
    catalogue,
    "gl:events:ingest",
    ContentChanged,
    delivery=DeliveryPolicy(lease=_LEASE),
    purpose="Content that an ingest changed, and which caches must forget",
    if_lost="a cache that was not told before is old until its life ends",
)

INGEST_LOCK = Locks(
    catalogue,
    "gl:lock:ingest:{schema}",
    lease=timedelta(seconds=120),
    purpose="One ingest of a schema at a time",
)
