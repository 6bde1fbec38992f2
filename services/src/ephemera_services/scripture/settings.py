"""The settings of scripture: `EPHEMERA_SCRIPTURE_...`, besides those that all services share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from ephemera_services.runtime import InvalidSettings, Secret, ServiceSettings, mail_problems
from ephemera_services.scripture.push_messages import push_problems

_WEB = ("http://", "https://")
_KEY_SET = "/.well-known/jwks.json"

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """The settings of scripture."""

    service: ClassVar[str] = "scripture"

    identity: str | None = "scripture"
    """The identity that its Redis must carry, so that it is not another database by mistake."""
    jwks: str | None = None
    """The key set that verifies access tokens: a URL, or a file. Without it tokens are refused."""
    revocations: str | None = None
    """The URL of the list of ended sign-ins, default beside `jwks`; `none`: tokens end when they expire."""
    revocations_grace: timedelta = timedelta(seconds=30)
    """How long users' tokens are accepted while this list cannot be read; administrators' are not."""
    issuer: str = "ephemera-identity"
    """The required issuer (`iss`) of tokens."""
    audience: str = "ephemera"
    """The required audience (`aud`) of tokens."""
    model_url: str | None = None
    """An OpenAI-compatible endpoint for chat completions; without it answers are quotations."""
    model_name: str = "gpt-4o-mini"
    """The model name for this endpoint."""
    model_key: Secret | None = None
    """Sent to the endpoints as a bearer token."""
    embeddings_url: str | None = None
    """An OpenAI-compatible endpoint for embeddings; without it similarity is lexical."""
    embeddings_model: str = "text-embedding-3-small"
    """The model name for the embeddings endpoint."""
    qdrant_url: str | None = None
    """A Qdrant shared by all processes; without it each has its own in memory."""
    qdrant_key: Secret | None = None
    """The API key of this Qdrant."""
    qdrant_ca: str | None = None
    """The file of the authority that signed its certificate; by default the public ones."""
    mail_url: Secret | None = None
    """`smtp://user:password@host:587` or `smtps://...`; without it mails stay in the table `mails`."""
    mail_ca: str | None = None
    """A file with the authorities that certify the mail server; default: those of the system."""
    mail_plaintext: bool = False
    """Send mails without TLS, to `smtp://` on this machine only."""
    mail_from: str = "scripture@localhost"
    """The sender of mails."""
    public_url: str | None = None
    """The address of this service for users, such as `https://texts.example.com`, for links in mails."""
    unsubscribe_key: Secret | None = None
    """Signs the links that end mails, at least 32 characters: `openssl rand -base64 32`."""
    vapid_key: Secret | None = None
    """The private key for Web Push, P-256 in base64url; without it there are no push notifications."""
    vapid_contact: str | None = None
    """Whom push services write to: `mailto:` and an address, or `https://` and a page."""
    push_anywhere: bool = False
    """Whether push services may be plain HTTP and in private networks; for development."""
    consumers: bool = True
    """Whether the service handles events itself; set to false if `ephemera worker` does."""
    ingest_bytes: Annotated[int, msgspec.Meta(ge=1000, le=50_000_000)] = 2_000_000
    """The largest accepted ingest document, in bytes."""
    search_free: Count = 20
    """Searches per minute, without a subscription"""
    search_paid: Count = 200
    """and with one."""
    passages_free: Count = 60
    """Passages per minute, without a subscription"""
    passages_paid: Count = 600
    """and with one."""
    lexicon_free: Count = 40
    """Lexicon entries per minute, without a subscription"""
    lexicon_paid: Count = 400
    """and with one."""
    account_per_minute: Count = 60
    """Requests of a user for their own settings per minute"""
    ai_free: Count = 5
    """Questions per hour, without a subscription,"""
    ai_paid: Count = 50
    """with one,"""
    ai_ai: Count = 200
    """and with an AI subscription."""

    def check(self) -> None:
        """Raise `InvalidSettings` with everything that is wrong with URLs and files."""
        problems = [f"EPHEMERA_SCRIPTURE_{name}: {problem}" for name, problem in self._problems()]
        if problems:
            raise InvalidSettings(problems)

    def _problems(self) -> Iterator[tuple[str, str]]:
        for name in ("model_url", "embeddings_url", "qdrant_url"):
            url = getattr(self, name)
            if url is not None and not url.startswith(_WEB):
                yield name.upper(), "it must begin with http:// or https://"
        if self.jwks is not None and not self.jwks.startswith(_WEB) and not Path(self.jwks).is_file():
            yield "JWKS", "it is neither a URL with http:// or https:// nor an existing file"
        if self.revocations is None and self.jwks is not None and self.revocations_url() is None:
            yield "REVOCATIONS", "set the URL of the list of ended sign-ins, or none to do without it"
        if self.revocations not in (None, "none") and not str(self.revocations).startswith(_WEB):
            yield "REVOCATIONS", "it must begin with http:// or https://, or be none"
        if self.public_url is not None and not self.public_url.startswith(_WEB):
            yield "PUBLIC_URL", "it must begin with http:// or https://"
        if self.unsubscribe_key is not None and len(self.unsubscribe_key.reveal()) < 32:
            yield "UNSUBSCRIBE_KEY", "it must have at least 32 characters"
        if self.unsubscribe_key is not None and self.public_url is None:
            yield "PUBLIC_URL", "the links that UNSUBSCRIBE_KEY signs need it"
        yield from push_problems(self.vapid_key, self.vapid_contact)
        yield from mail_problems(self.mail_url, self.mail_ca, plaintext=self.mail_plaintext)

    def revocations_url(self) -> str | None:
        """The URL of the list of ended sign-ins; None if tokens are accepted until they expire."""
        if self.revocations is not None:
            return None if self.revocations == "none" else self.revocations
        beside, found, _ = (self.jwks or "").rpartition(_KEY_SET)
        return f"{beside}/.well-known/ended-sign-ins" if found and beside.startswith(_WEB) else None

    def limits(self) -> dict[str, dict[str, int]]:
        """The limits by rule and tier: per minute, for `ai` per hour."""
        return {
            "search": {"free": self.search_free, "paid": self.search_paid},
            "passages": {"free": self.passages_free, "paid": self.passages_paid},
            "lexicon": {"free": self.lexicon_free, "paid": self.lexicon_paid},
            "account": {"free": self.account_per_minute, "paid": self.account_per_minute},
            "ai": {"free": self.ai_free, "paid": self.ai_paid, "ai": self.ai_ai},
        }
