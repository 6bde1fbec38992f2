"""What slides keeps in Redis, on two servers: one that may evict (cache), and one that may not (queue).

All of it may vanish. The truth is in SQL (`tables`): who has which role, which plan an organization has, how
far a job is, what was made. What has the role `queue` is not in SQL yet, or tells somebody to look there.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from ephemera import Catalogue, fixed, sliding
from ephemera.patterns.entitlements import Entitlements
from ephemera.patterns.fanout import Fanout
from ephemera.patterns.jobs import Jobs
from ephemera.patterns.progress import Progress
from ephemera.patterns.rate_limits import RateLimits, fixed_window, local_share
from ephemera.patterns.semantic_cache import Matching, Scope, SemanticCache
from ephemera.patterns.sessions import Sessions
from ephemera.patterns.usage import Usage
from ephemera.patterns.write_behind import DeferredCounters
from ephemera_services.slides.progress_events import Done, Event, Failed, Notification, final_event
from ephemera_services.slides.tables import metadata

_MINUTE = timedelta(minutes=1)

catalogue = Catalogue("slides")


class CachedSession(msgspec.Struct, frozen=True, kw_only=True):
    """Who is signed in, as SQL had it then; a change of role or a block ends it."""

    user_id: str
    organization_id: str
    role: str
    email: str
    plan: str
    created_at: datetime
    last_active: datetime
    ip: str


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an organization's plan allows; None is without a limit."""

    plan_name: str
    max_presentations_per_month: int | None
    max_file_size_mb: int
    ai_tokens_per_month: int | None
    storage_gb: int
    requests_per_minute: int
    features: list[str]
    subscription_status: str


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """What a presentation is going to say: a title for each slide."""

    title: str
    slides: list[str]
    tokens: int = 0


class DeckScope(Scope, frozen=True, kw_only=True):
    """An outline is for as many slides as it has, and for its audience."""

    slides: int
    audience: str


SESSIONS = Sessions(
    catalogue, "session:{session_id}", CachedSession, user="user_id", lifetime=sliding(hours=24)
)

LIMITS = Entitlements(
    catalogue,
    "plan_limits:{organization_id}",
    PlanLimits,
    lifetime=fixed(seconds=300),
    purpose="What an organization's plan allows",
)

BY_KEY = fixed_window(
    "api-key",
    60,
    per=_MINUTE,
    key="ratelimit:{api_key_id}:{minute}",
    keep=2 * _MINUTE,
    when_down=local_share(of=1),
)
BY_USER = fixed_window(
    "user",
    60,
    per=_MINUTE,
    key="ratelimit:user:{user_id}:{minute}",
    keep=2 * _MINUTE,
    when_down=local_share(of=1),
)
LOGIN = fixed_window(
    "login",
    10,
    per=_MINUTE,
    key="ratelimit:login:{address}:{minute}",
    keep=2 * _MINUTE,
    when_down="closed",  # nobody guesses passwords while nobody counts
)
RATES = RateLimits(catalogue, "ratelimit", BY_KEY, BY_USER, LOGIN)
"""By the minutes of the clock: up to twice the limit fits into a minute across the boundary of two."""

OUTLINES = SemanticCache(
    catalogue,
    "semantic_cache:{hash}",
    Outline,
    scope=DeckScope,
    lifetime=fixed(hours=24),
    matching=Matching(threshold=0.95),
    tokens=lambda outline: outline.tokens,
    purpose="Outlines as the model wrote them",
    sensitive=True,
)

PROGRESS: Progress[Event] = Progress(
    catalogue,
    "gen_progress:{job_id}",
    Event,
    wake="pubsub:gen_progress",
    terminal=(Done, Failed),
    lifetime=fixed(hours=2),
    max_entries=200,
)

JOBS = Jobs(
    catalogue,
    "gen_checkpoint:{job_id}",
    queues=("generation", "ingestion", "export"),
    progress=PROGRESS,
    final_event=final_event,
    metadata=metadata,
    checkpoint_lifetime=fixed(hours=1),
)
"""Three queues, so that large files never keep a generation waiting."""

NOTIFICATIONS = Fanout(
    catalogue,
    "ws_connections:{user_id}",
    Notification,
    channel="pubsub:notifications",
    lifetime=fixed(seconds=300),
)

USAGE = Usage(
    catalogue,
    measures=["presentations", "slides", "tokens", "cost_micros"],
    flush_every=timedelta(minutes=15),
    retention=timedelta(days=90),
    purpose="What organizations use in a month",
)

VIEWS = DeferredCounters(
    catalogue,
    "presentation_view_count",
    key=["presentation_id"],
    measures=["view_count"],
    flush_every=_MINUTE,
    purpose="Views of shared presentations",
)
