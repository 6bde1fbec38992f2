"""Everything that slides keeps in Redis, on two servers: a cache that may evict, and a queue that must not.

Losing any of it is safe. SQL (`tables`) is the source of truth for roles, plans, jobs and their results. The
role `queue` is for sessions and limits, which no flood of cached data may evict, for data that is not in SQL
yet, or that wakes a process which then reads SQL.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias

import msgspec

from ephemera import Catalogue, fixed, sliding
from ephemera.patterns.entitlements import Entitlements
from ephemera.patterns.events import DeliveryPolicy, Events
from ephemera.patterns.fanout import Fanout
from ephemera.patterns.jobs import Jobs
from ephemera.patterns.progress import Progress
from ephemera.patterns.rate_limits import RateLimits, fixed_window, local_share
from ephemera.patterns.semantic_cache import MatchPolicy, Scope, SemanticCache
from ephemera.patterns.sessions import Sessions
from ephemera.patterns.usage import Usage
from ephemera.patterns.write_behind import DeferredCounters
from ephemera_services.runtime import SignInAttempts, declare_tables
from ephemera_services.slides.progress_events import Done, Event, Failed, JobNotification, final_event
from ephemera_services.slides.tables import metadata

_MINUTE = timedelta(minutes=1)

# What Redis holds is untrusted: a value outside of these types is a miss.
_Id: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
_Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
_Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

SubscriptionStatus: TypeAlias = Literal["active", "trialing", "past_due"]
_RENEWAL_GRACE = timedelta(days=3)

catalogue = Catalogue("slides")


class CachedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A signed-in user, as of the sign-in; a role change or a block ends the session."""

    user_id: _Id
    organization_id: _Id
    role: Literal["viewer", "editor", "admin"]
    email: str
    plan: str
    created_at: _Moment
    last_active: _Moment
    ip: str


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an organization's plan; None means unlimited."""

    plan_name: str
    max_presentations_per_month: _Limit | None
    max_file_size_mb: _Limit
    ai_tokens_per_month: _Limit | None
    storage_gb: _Limit
    requests_per_minute: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    features: list[str]
    subscription_status: SubscriptionStatus
    period_end: _Moment | None = None
    """When the paid or the trial period ends; None if it is open."""

    def refusal(self, now: datetime) -> str | None:
        """Why new work is refused; None if it is allowed. What exists can be read in any case."""
        if self.subscription_status == "past_due":
            return "The last payment of your organization failed; new work is possible when it is settled."
        if self.period_end is None or now < self.period_end + self._grace:
            return None
        kind = "trial" if self.subscription_status == "trialing" else "subscription"
        return f"The {kind} of your organization ended on {self.period_end:%Y-%m-%d}; renew it for new work."

    @property
    def _grace(self) -> timedelta:
        """A renewal may be late; a trial ends when it ends."""
        return timedelta(0) if self.subscription_status == "trialing" else _RENEWAL_GRACE


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
    catalogue,
    "session:{session_id}",
    CachedSession,
    user="user_id",
    lifetime=sliding(hours=24, outlives="the browser's use of it"),
    absolute_lifetime=timedelta(days=30),
    role="queue",
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
SHARED = fixed_window(
    "shared",
    120,
    per=_MINUTE,
    key="ratelimit:shared:{address}:{minute}",
    keep=2 * _MINUTE,
    when_down=local_share(of=1),
)
RATES = RateLimits(catalogue, "ratelimit", BY_KEY, BY_USER, LOGIN, SHARED, role="queue")
"""Windows are clock minutes: across a boundary, up to twice the limit fits into 60 seconds."""

SIGN_INS = SignInAttempts(catalogue, "login")

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
    keep=None,  # documents, presentations and exports are read together with the state of their jobs
)
"""Three queues, so that large files never delay a generation."""

DEFAULT_QUEUES = ("generation", "export")
"""The queues of a worker that names none: documents are read by workers of their own."""

NOTIFICATIONS = Fanout(
    catalogue,
    "ws_connections:{user_id}",
    JobNotification,
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

MAX_WEBHOOK_ATTEMPTS = 8
"""Requests for one delivery."""


class WebhookDue(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery, which SQL has, is due."""

    delivery_id: _Id


WEBHOOKS = Events(
    catalogue,
    "webhooks",
    WebhookDue,
    delivery=DeliveryPolicy(max_deliveries=10 * MAX_WEBHOOK_ATTEMPTS),  # most of them wait for others
    purpose="Deliveries of webhooks that are due",
    if_lost="they are published again from SQL, within half an hour",
)

VIEWS = DeferredCounters(
    catalogue,
    "presentation_view_count",
    key=["presentation_id"],
    measures=["view_count"],
    flush_every=_MINUTE,
    purpose="Views of shared presentations",
)

TABLES = declare_tables(catalogue, metadata)
"""The service's own tables in SQL, for `ephemera migrate`."""
