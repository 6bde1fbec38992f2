"""The settings of identity: `EPHEMERA_IDENTITY_...`, besides those that all services share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

import msgspec

from ephemera_services.runtime import EMAIL_LENGTH, EMAIL_PATTERN, Secret, ServiceSettings

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """The settings of identity."""

    service: ClassVar[str] = "identity"

    issuer: str = "ephemera-identity"
    """The issuer (`iss`) of the tokens, as other services expect it."""
    audience: str = "ephemera"
    """The audience (`aud`) of the tokens."""
    admin_email: Annotated[str, msgspec.Meta(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH)] | None = None
    """An administrator to create at startup, if there is no user with this address."""
    admin_password: Secret | None = None
    """The password of this administrator."""
    key_password: Secret | None = None
    """Encrypts the private keys in SQL."""
    key_ahead: timedelta = timedelta(minutes=10)
    """How long a new signing key is published before it signs."""
    windows: Literal["fixed", "sliding"] = "fixed"
    """Rate limits per clock hour, or in any 60 minutes."""
    logins_per_hour: Count = 5
    """Sign-in attempts from one address."""
    profile_reads_per_hour: Count = 100
    """Profile reads by one user."""
    profile_updates_per_hour: Count = 10
    """Profile updates by one user."""
    uploads_per_hour: Count = 20
    """Document uploads by one user."""
    document_bytes: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 5_000_000
    """The largest accepted document."""
    password_memory: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 64
    """Mebibytes that a password check uses; more makes brute force, and every sign-in, more expensive."""

    def per_hour(self, rule: str) -> int:
        """The limit of a rule."""
        return {
            "login": self.logins_per_hour,
            "profile-read": self.profile_reads_per_hour,
            "profile-update": self.profile_updates_per_hour,
            "document-upload": self.uploads_per_hour,
        }[rule]
