"""What the league is told by its environment: `EPHEMERA_LEAGUE_...`, besides what all systems take."""

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
    """What `POST /api/cache/prewarm` wants in `x-prewarm-token`; without it there is no such route."""
    match_window_lookahead_days: Annotated[int, msgspec.Meta(ge=1, le=60)] = 7
    """How far ahead matches are looked for."""
    match_window_prewarm_minutes: Minutes = 45
    """How long before its first match a window opens."""
    match_window_post_grace_minutes: Minutes = 30
    """How long a window stays open after its last match."""
    prewarm: bool = True
    """Load what is declared so when a window opens, and after a match is finalized."""
    rehearse_ahead: timedelta | None = None
    """How far this process's windows are ahead of time: to rehearse a match day before it is there."""
    requests_per_10_seconds: Count = 15
    """On live routes, from one address."""
    sign_ins_per_10_minutes: Count = 20
    """From one address."""
    admin_name: Annotated[str, msgspec.Meta(pattern=LOGIN_NAME_PATTERN)] | None = None
    """An administrator who is created at the start, if there is no user of this name."""
    admin_password: Secret | None = None
    """The password of this administrator."""
    password_memory: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 64
    """Mebibytes that a password check takes."""
    secure_cookies: bool = True
    """Cookies for TLS alone; false for development without it."""
    redis_megabytes: Annotated[int, msgspec.Meta(ge=4, le=1_000_000)] | None = None
    """The memory that Redis may use: 25 for the smallest plans. The Valkey of its own keeps to it."""
    leaderboards_every: timedelta = timedelta(hours=6)
    """How often leaderboards are counted anew."""
    demo: bool = False
    """A season with clubs, matches and users, if the database has none."""
