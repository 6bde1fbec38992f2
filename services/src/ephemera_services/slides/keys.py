"""Everything that slides keeps in Redis, on two servers: a cache that may evict, and a queue that must not.

Losing any of it is safe. SQL (`tables`) is the source of truth for roles, plans, jobs and their results. The
role `queue` is for data that is not in SQL yet, or that wakes a process which then reads SQL.
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
from ephemera.patterns.semantic_cache import MatchPolicy, Scope, SemanticCache
from ephemera.patterns.sessions import Sessions
from ephemera.patterns.usage import Usage
from ephemera.patterns.write_behind import DeferredCounters
from ephemera_services.slides.progress_events import Done, Event, Failed, Notification, final_event
from ephemera_services.slides.tables import metadata

_MINUTE = timedelta(minutes=1)

catalogue = Catalogue("slides")


class CachedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A signed-in user, as of the sign-in; a role change or a block ends the session."""

    user_id: str
    organization_id: str
    role: str
    email: str
    plan: str
    created_at: datetime
    last_active: datetime
    ip: str


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an organization's plan; None means unlimited."""

    plan_name: str
    max_presentations_per_month: int | None
    max_file_size_mb: int
    ai_tokens_per_month: int | None
    storage_gb: int
    requests_per_minute: int
    features: list[str]
    subscription_status: str


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """The outline of a presentation: a title for each slide."""

    title: str
    slides: list[str]
    tokens: int = 0


class DeckScope(Scope, frozen=True, kw_only=True):
    """An outline is also specific to its number of slides and its audience."""

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
    purpose="The limits of an organization's plan",
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
    when_down="closed",  # no password guessing while attempts cannot be counted
)
RATES = RateLimits(catalogue, "ratelimit", BY_KEY, BY_USER, LOGIN)
"""Windows are clock minutes: across a boundary, up to twice the limit fits into 60 seconds."""

OUTLINES = SemanticCache(
    catalogue,
    "semantic_cache:{hash}",
    Outline,
    scope=DeckScope,
    lifetime=fixed(hours=24),
    match_policy=MatchPolicy(threshold=0.95),
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
"""Three queues, so that large files never delay a generation."""

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
    purpose="Usage of organizations per month",
)

VIEWS = DeferredCounters(
    catalogue,
    "presentation_view_count",
    key=["presentation_id"],
    measures=["view_count"],
    flush_every=_MINUTE,
    purpose="Views of shared presentations",
)
