"""Limits for tests: rules with readable keys as services declare them, and one rule of each kind."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from ephemera.keyspace import Catalogue
from ephemera.patterns.rate_limits import (
    RateLimits,
    fixed_window,
    local_share,
    sliding_window,
    token_bucket,
)

SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=length) for length in (1, 60, 3600, 86_400))

CATALOGUE = Catalogue("limited")

# Five units a day: no test crosses the edge of a day's window, or waits for one.
WINDOW = fixed_window("window", 5, per=DAY)
LOG = sliding_window("log", 5, per=DAY)
BUCKET = token_bucket("bucket", 5, per=DAY)
KINDS = (WINDOW, LOG, BUCKET)

# Short periods, for tests over time.
SECONDLY = fixed_window("secondly", 5, per=SECOND)
BRIEF = sliding_window("brief", 5, per=timedelta(milliseconds=300))
SLIDING_SECOND = sliding_window("sliding-second", 5, per=SECOND)
CROWD = sliding_window("crowd", 600, per=SECOND)
FLOW = token_bucket("flow", 20, per=SECOND, burst=5)

# Readable keys.
KEY = fixed_window(
    "api-key", {"free": 10, "pro": 60}, per=MINUTE, key="ratelimit:{api_key_id}:{minute}", keep=2 * MINUTE
)
USER = fixed_window("user", 10, per=MINUTE, key="ratelimit:user:{user_id}:{minute}", keep=2 * MINUTE)
_RATE = "rate:{subject}:{endpoint}:{yyyyMMddHH}"
READ = fixed_window("profile-read", 100, per=HOUR, key=_RATE, where={"endpoint": "/api/profiles"})
LOGIN = fixed_window("login", 5, per=HOUR, key=_RATE, where={"endpoint": "/auth/login"})
_GATEWAY = "gl:ratelimit:{subject}:{endpoint}:{window_start}"
PASSAGES = fixed_window("passages", 60, per=MINUTE, key=_GATEWAY, where={"endpoint": "passages"})
ASK = fixed_window("ask", 5, per=HOUR, key=_GATEWAY, where={"endpoint": "ask"})

# Tiers, hash tags and policies.
TIERED_WINDOW = fixed_window("tiered-window", {"free": 2, "pro": 6}, per=DAY)
TIERED_LOG = sliding_window("tiered-log", {"free": 2, "pro": 6}, per=DAY)
TIERED_BUCKET = token_bucket("tiered-bucket", {"free": 10, "pro": 100}, per=DAY)
ORG = fixed_window("org", 50, per=DAY, key="limit:{org}:{window_start}", hash_tag="org")
ORG_LOG = sliding_window("org-log", 3, per=DAY, key="limit-log:{org}", hash_tag="org")
CLOSED = fixed_window("closed", 5, per=DAY, when_down="closed")
SHARED = sliding_window("shared", 8, per=DAY, when_down=local_share(of=4))

LIMITS = RateLimits(
    CATALOGUE,
    "limited",
    *KINDS,
    *(SECONDLY, BRIEF, SLIDING_SECOND, CROWD, FLOW),
    *(KEY, USER, READ, LOGIN, PASSAGES, ASK),
    *(TIERED_WINDOW, TIERED_LOG, TIERED_BUCKET, ORG, ORG_LOG, CLOSED, SHARED),
)


def new_subject() -> str:
    """A subject that no other test uses."""
    return uuid4().hex
