"""The settings of identity: `EPHEMERA_IDENTITY_...`, besides those that all services share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

import msgspec

from ephemera.errors import InvalidUrl
from ephemera.wire import parse_url
from ephemera_services.runtime import (
    EMAIL_LENGTH,
    EMAIL_PATTERN,
    InvalidSettings,
    Secret,
    ServiceSettings,
    mail_problems,
)

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
    """Encrypts the private keys in SQL; required with a database of your own, unless in development."""
    sign_in_lifetime: timedelta = timedelta(days=30)
    """How long a sign-in can be refreshed; after that the password is required again."""
    key_ahead: timedelta = timedelta(minutes=10)
    """How long a new signing key is published before it signs."""
    windows: Literal["fixed", "sliding"] = "fixed"
    """Rate limits per clock hour, or in any 60 minutes."""
    logins_per_hour: Count = 5
    """Sign-in attempts from one address."""
    wrong_passwords_per_hour: Count = 10
    """Wrong passwords for one account: from each address that signed in to it, and from all others."""
    registrations_per_hour: Count = 10
    """New accounts from one address."""
    all_registrations_per_hour: Count = 3600
    """New accounts from all addresses together."""
    refreshes_per_hour: Count = 60
    """Refreshes of one sign-in; each one lists a used refresh token in Redis until it would have expired."""
    address_refreshes_per_hour: Count = 600
    """Refreshes of all sign-ins from one address."""
    profile_reads_per_hour: Count = 100
    """Profile reads by one user."""
    profile_updates_per_hour: Count = 10
    """Profile updates by one user."""
    uploads_per_hour: Count = 20
    """Document uploads by one user."""
    document_reads_per_hour: Count = 100
    """Documents and lists of them that one user reads, and deletions."""
    mail_requests_per_hour: Count = 10
    """Requests for a mail (a reset, a confirmation) from one address."""
    mails_per_hour: Count = 5
    """Requests for a mail to one account, from all addresses."""
    confirmations_per_hour: Count = 30
    """Codes from mails that are tried from one address."""
    exports_per_hour: Count = 5
    """Exports of everything by one user."""
    revocation_lists_per_hour: Count = 600
    """Reads of all recent revocations from one address; reads of what is new since are not counted."""
    documents_per_user: Count = 100
    """Documents that one user can store."""
    document_bytes_per_user: Count = 50_000_000
    """Bytes of all documents that one user can store."""
    document_bytes: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 5_000_000
    """The largest accepted document."""
    password_memory: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 64
    """Mebibytes that a password check uses; more makes brute force, and every sign-in, more expensive."""

    require_verified_email: bool = False
    """Whether an address must be confirmed before its first sign-in."""
    public_url: str | None = None
    """The address of this service for users, such as `https://id.example.com`, for links in mails."""
    mail_url: Secret | None = None
    """`smtp://user:password@host:587` or `smtps://...`; without it mails are files in `mail_folder`."""
    mail_ca: str | None = None
    """A file with the authorities that certify the mail server; default: those of the system."""
    mail_plaintext: bool = False
    """Send mails without TLS, to `smtp://` on this machine only."""
    mail_from: str = "identity@localhost"
    """The sender of mails."""
    mail_folder: str | None = None
    """Where mails go without a mail server; default: in `EPHEMERA_DATA`, temporary in development."""
    introspection_tokens: Secret | None = None
    """Bearer tokens of services that may introspect tokens, separated by commas; without it, no one may."""
    events_url: Secret | None = None
    """The Redis with the stream `gl:events:users`, for other services; without it no events are published."""
    events_identity: str | None = "scripture"
    """The identity that this Redis must carry: that of the service which consumes the stream."""

    def check(self) -> None:
        """Raise `InvalidSettings` with everything that is wrong."""
        problems = [f"EPHEMERA_IDENTITY_{name}: {problem}" for name, problem in self._problems()]
        if problems:
            raise InvalidSettings(problems)

    def _problems(self) -> Iterator[tuple[str, str]]:
        if self.key_password is None and self.database_url is not None and not self.development:
            problem = "it encrypts the keys that sign tokens; create one with: openssl rand -base64 32"
            yield "KEY_PASSWORD must be set", problem
        if self.public_url is not None and not self.public_url.startswith(("http://", "https://")):
            yield "PUBLIC_URL", "it must begin with http:// or https://"
        yield from mail_problems(self.mail_url, self.mail_ca, plaintext=self.mail_plaintext)
        try:
            if self.events_url is not None:
                parse_url(self.events_url.reveal())
        except InvalidUrl as invalid:
            yield "EVENTS_URL", str(invalid)

    def per_hour(self, rule: str) -> int:
        """The limit of a rule."""
        return {
            "login": self.logins_per_hour,
            "register": self.registrations_per_hour,
            "register-total": self.all_registrations_per_hour,
            "refresh": self.refreshes_per_hour,
            "refresh-address": self.address_refreshes_per_hour,
            "profile-read": self.profile_reads_per_hour,
            "profile-update": self.profile_updates_per_hour,
            "document-upload": self.uploads_per_hour,
            "document-read": self.document_reads_per_hour,
            "mail-request": self.mail_requests_per_hour,
            "mail": self.mails_per_hour,
            "confirm": self.confirmations_per_hour,
            "export": self.exports_per_hour,
            "revocation-list": self.revocation_lists_per_hour,
        }[rule]
