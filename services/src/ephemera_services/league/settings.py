"""The settings of the league: `EPHEMERA_LEAGUE_...`, besides those that all services share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

import msgspec

from ephemera_services.runtime import LOGIN_NAME_PATTERN, Secret, ServiceSettings

Minutes = Annotated[int, msgspec.Meta(ge=0, le=24 * 60)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """The settings of the league."""

    service: ClassVar[str] = "league"

    cache_prewarm_token: Secret | None = None
    """The `x-prewarm-token` of `POST /api/cache/prewarm`; without it there is no such route."""
    match_window_lookahead_days: Annotated[int, msgspec.Meta(ge=1, le=60)] = 7
    """How far ahead windows are computed."""
    match_window_prewarm_minutes: Minutes = 45
    """How long before its first match a window opens."""
    match_window_post_grace_minutes: Minutes = 30
    """How long a window stays open after its last match."""
    prewarm: bool = True
    """Prewarm pages when a window opens, and after a match is finalized."""
    rehearse_ahead: timedelta | None = None
    """Shift of this process's windows into the future, to rehearse a match day."""
    requests_per_10_seconds: Count = 15
    """On live routes, from one address."""
    pages_per_10_seconds: Count = 60
    """Other pages with an id, from one address."""
    comments_per_minute: Count = 10
    """By one user."""
    predictions_per_minute: Count = 60
    """By one user."""
    votes_per_minute: Count = 60
    """By one user."""
    administration_per_minute: Count = 600
    """Requests to routes of the administration, by one user."""
    sign_ins_per_10_minutes: Count = 20
    """From one address."""
    wrong_passwords_per_hour: Count = 10
    """Wrong passwords for one name, from all addresses that never signed in with it, and from each other."""
    registrations_per_hour: Count = 10
    """New accounts from one address."""
    all_registrations_per_hour: Count = 3600
    """New accounts from all addresses together."""
    admin_name: Annotated[str, msgspec.Meta(pattern=LOGIN_NAME_PATTERN)] | None = None
    """An administrator to create at startup, if there is no user with this name."""
    admin_password: Secret | None = None
    """The password of this administrator."""
    password_memory: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 64
    """Mebibytes that a password check uses."""
    secure_cookies: bool = True
    """Cookies only over TLS; set to false for development without it."""
    peak_requests_per_second: Count = 200
    """From this rate of requests to this process on, the table is fresh for 15 s inside windows, not 30."""
    slow_query_milliseconds: Count = 200
    """How long an SQL statement takes that monitoring reports as slow."""
    redis_megabytes: Annotated[int, msgspec.Meta(ge=4, le=1_000_000)] | None = None
    """The memory limit of Redis: 25 for the smallest plans. An embedded Valkey is limited to it."""
    object_store_url: Annotated[str, msgspec.Meta(pattern="^(file:///|s3://).")] | None = None
    """Where large pages are, with a pointer in Redis: `file:///folder`, or `s3://bucket/prefix`."""
    object_store_over: Count = 32_768
    """Bytes, as compressed, above which a page is there; never a private one."""
    leaderboards_every: timedelta = timedelta(hours=6)
    """How often leaderboards are computed."""
    demo: bool = False
    """Create a demo season with clubs, matches and users, if the database has none."""
    demo_referee: bool = True
    """Play the matches of the demo, about three minutes each; false leaves its one live match as it is."""
