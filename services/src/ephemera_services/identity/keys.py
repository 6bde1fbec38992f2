"""Everything that identity keeps in Redis: losing any of it is safe, and nothing in it grants access.

SQL (`tables`) is the source of truth for roles, ended sign-ins and current refresh tokens. These keys save a
query on every request, and coordinate processes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from ephemera import Catalogue, fixed
from ephemera.patterns.cache import Cache, LocalCache
from ephemera.patterns.rate_limits import RateLimits, Rule, fixed_window, local_share, sliding_window
from ephemera.patterns.revocation import Revocation, TokenKind
from ephemera.patterns.sessions import Sessions
from ephemera_services.identity.tables import metadata
from ephemera_services.runtime import SignInAttempts, declare_tables, declare_user_events

ACCESS_TOKEN_LIFETIME = timedelta(minutes=15)
REFRESH_TOKEN_LIFETIME = timedelta(days=7)
_HOUR = timedelta(hours=1)

catalogue = Catalogue("identity")

events_catalogue = Catalogue("identity-events")
"""What identity writes to the Redis of `events_url`, which other services consume."""
USERS = declare_user_events(events_catalogue)


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An active sign-in: the ids of its tokens and when they expire, never a token."""

    user_id: str
    session_id: str
    access_id: str
    refresh_id: str
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)]
    ip_address: str
    user_agent: str


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A user's profile as of `cached_at`."""

    user_id: str
    email: str
    first_name: str
    last_name: str
    phone: str
    address: str
    cached_at: datetime


SESSIONS = Sessions(
    catalogue,
    "session:{user_id}:{sid}",
    SessionRecord,
    user="user_id",
    index="session_index:{user_id}",
    lifetime=fixed(hours=1, outlives="the access tokens of the sign-in"),
    kind="value",
    role="queue",
    purpose="Which sign-ins are active, from where and since when",
    saves="a write to SQL on every use",
    if_lost="lists of sessions do not show which are active until their next refresh",
)

REVOKED = Revocation(
    catalogue,
    tokens={
        "access": TokenKind(
            "blacklist:access:{jti}", lifetime=ACCESS_TOKEN_LIFETIME
        ),  # without Redis, SQL decides
        "refresh": TokenKind("blacklist:refresh:{jti}", lifetime=REFRESH_TOKEN_LIFETIME),
    },
)

PROFILES = Cache(
    catalogue,
    "cache:profile:{user_id}",
    Profile,
    fresh=timedelta(seconds=300),
    local=LocalCache(),
    sensitive=True,
    purpose="Profiles as SQL has them",
    saves="a SQL read for each profile read",
    invalidated_by=("a profile update", "an administrator"),
    if_lost="it is loaded from SQL again",
)

ENDPOINTS = {
    "login": "/auth/login",
    "register": "/auth/register",
    "register-total": "/auth/register/total",
    "refresh": "/auth/refresh",
    "refresh-address": "/auth/refresh/address",
    "profile-read": "/api/profiles",
    "profile-update": "/api/profiles/update",
    "document-upload": "/api/documents/upload",
    "document-read": "/api/documents",
    "mail-request": "/auth/mails",
    "mail": "/auth/mails/account",
    "confirm": "/auth/mails/confirm",
    "export": "/auth/account/export",
    "revocation-list": "/.well-known/ended-sign-ins",
}
"""The names of the rules, and how they appear in keys."""

_PER_HOUR = {
    "login": 5,
    "register": 10,
    "register-total": 3600,
    "refresh": 60,
    "refresh-address": 600,
    "profile-read": 100,
    "profile-update": 10,
    "document-upload": 20,
    "document-read": 100,
    "mail-request": 10,
    "mail": 5,
    "confirm": 30,
    "export": 5,
    "revocation-list": 600,
}
_WHEN_DOWN = {
    "login": "closed",  # no password guessing while attempts cannot be counted
    "register": local_share(of=1),  # each process by itself
    "register-total": local_share(of=1),
    "refresh": "open",  # refreshing requires Redis anyway
    "refresh-address": "open",
    "profile-read": "open",
    "profile-update": local_share(of=1),
    "document-upload": local_share(of=1),
    "document-read": "open",
    "mail-request": local_share(of=1),
    "mail": local_share(of=1),
    "confirm": local_share(of=1),
    "export": local_share(of=1),
    "revocation-list": "open",  # services must learn what was revoked
}


def _hourly(name: str) -> Rule:
    return fixed_window(
        name,
        _PER_HOUR[name],
        per=_HOUR,
        key="rate:{subject}:{endpoint}:{yyyyMMddHH}",
        where={"endpoint": ENDPOINTS[name]},
        when_down=_WHEN_DOWN[name],  # type: ignore[arg-type] # they are policies
    )


def _sliding(name: str) -> Rule:
    return sliding_window(
        name,
        _PER_HOUR[name],
        per=_HOUR,
        key="sliding_rate:{subject}:{endpoint}",
        where={"endpoint": ENDPOINTS[name]},
        when_down=_WHEN_DOWN[name],  # type: ignore[arg-type]
    )


HOURLY = RateLimits(catalogue, "rate", *map(_hourly, ENDPOINTS), role="queue")
"""Windows are clock hours: across a boundary, up to twice the limit fits into 60 minutes."""

SLIDING = RateLimits(catalogue, "sliding_rate", *map(_sliding, ENDPOINTS), role="queue")
"""The same limits in any 60 minutes: EPHEMERA_IDENTITY_WINDOWS=sliding."""

ATTEMPTS = SignInAttempts(catalogue, "rate_sign_in")
"""Wrong passwords for one account, from any number of addresses."""

TABLES = declare_tables(catalogue, metadata)
"""The service's own tables in SQL, for `ephemera migrate`."""
